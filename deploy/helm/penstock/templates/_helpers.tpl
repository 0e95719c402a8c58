{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-penstock" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Of one kind of daemon: list $ "nsqd". */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{/* Where the pods of a StatefulSet are found, with the pod's name before it. */}}
{{- define "penstock.domain" -}}
{{- $top := index . 0 -}}
{{ include "penstock.name" $top }}-{{ index . 1 }}.{{ $top.Release.Namespace }}.svc.{{ $top.Values.clusterDomain }}
{{- end }}

{{/* An argument for every nsqlookupd: list $ "--lookupd-tcp-address" 4160. */}}
{{- define "penstock.lookupds" -}}
{{- $top := index . 0 }}{{ $flag := index . 1 }}{{ $port := index . 2 }}
{{- $domain := include "penstock.domain" (list $top "nsqlookupd") }}
{{- range $number := until (int $top.Values.nsqlookupd.replicas) }}
- {{ $flag }}={{ include "penstock.name" $top }}-nsqlookupd-{{ $number }}.{{ $domain }}:{{ $port }}
{{- end }}
{{- end }}

{{- define "penstock.etcd" -}}
{{- with .Values.cluster -}}
- --cluster={{ ternary "etcds" "etcd" .tls }}://{{ with .user }}{{ . }}@{{ end }}{{ .etcd }}/{{ .name }}
{{- if .passwordSecret }}
- --cluster-password-file=/etc/penstock/etcd-password/password
{{- end }}
{{- if .caSecret }}
- --cluster-etcd-ca=/etc/penstock/etcd-ca/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{/* A pod's spec up to its containers: list $ "nsqd". */}}
{{- define "penstock.pod" -}}
{{- $top := index . 0 }}{{ $component := index . 1 }}{{ $own := index $top.Values $component -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 4150
  runAsGroup: 4150
  fsGroup: 4150
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
automountServiceAccountToken: false
{{- with $top.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
{{- if eq $top.Values.antiAffinity "hard" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "penstock.selector" . | nindent 12 }}
{{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "penstock.selector" . | nindent 14 }}
{{- end }}
{{- end }}

{{/* What every container has. */}}
{{- define "penstock.container" -}}
{{- $top := index . 0 }}{{ $own := index $top.Values (index . 1) -}}
image: "{{ $top.Values.image.repository }}:{{ $top.Values.image.tag | default $top.Chart.AppVersion }}"
imagePullPolicy: {{ $top.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with $own.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Secrets as files: list of (name of the volume, name of the Secret), empty ones left out. */}}
{{- define "penstock.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- range . }}{{ if index . 1 }}
- {name: {{ index . 0 }}, mountPath: /etc/penstock/{{ index . 0 }}, readOnly: true}
{{- end }}{{ end }}
{{- end }}

{{- define "penstock.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- range . }}{{ if index . 1 }}
- {name: {{ index . 0 }}, secret: {secretName: {{ index . 1 }}, defaultMode: 0440}}
{{- end }}{{ end }}
{{- end }}
