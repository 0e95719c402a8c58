"""Every option of nsqadmin: the official flags, and ours.

Unlike the official one it listens on the loopback interface unless it is told otherwise.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock import limits
from penstock.command.flags import flag, flags_of, options_of, resolve
from penstock.command.program import (
    CLIENT_CA,
    CLIENT_CERT,
    CLIENT_KEY,
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    CommonOptions,
    log_prefix,
)
from penstock.errors import ConfigError
from penstock.net.gate import is_loopback_host
from penstock.net.tls import TlsFiles

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
TRUSTED_BY_DEFAULT = ("127.0.0.0/8", "::1/128")
CALLBACK = "/login/oidc/callback"  # where an OIDC provider sends the browser back to


# What is told to nobody: of the program itself.
UNTOLD = frozenset(("version", "config", "verbose", "dev-static-dir"))


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    # fmt: off
    log_prefix: str = log_prefix("nsqadmin")
    http_address: str = flag("127.0.0.1:4171", "<addr>:<port> for HTTP clients; loopback unless "
        "set otherwise")
    base_path: str = flag("/", "URL base path, for a reverse proxy")
    dev_static_dir: str = flag("", "accepted; there are no static files to replace",
        has_effect=False)
    lookupd_http_address: tuple[str, ...] = flag((), "<addr>:<port> of an nsqlookupd (may be given "
        "several times)", key="nsqlookupd_http_addresses")
    nsqd_http_address: tuple[str, ...] = flag((), "<addr>:<port> of an nsqd (may be given several "
        "times)", key="nsqd_http_addresses")
    admin_user: tuple[str, ...] = flag((), "user that may change things (may be given several "
        "times); when there is none, everybody who is not held back otherwise", key="admin_users")
    acl_http_header: str = flag("X-Forwarded-User", "HTTP header with the user's name, set by a "
        "proxy in front")
    acl_email_header: str = flag("", "HTTP header with the user's email address, such as "
        "X-Forwarded-Email: for a proxy that sets it, or takes it off what comes from outside")
    acl_groups_header: str = flag("X-Forwarded-Groups", "HTTP header with the user's groups, with "
        "commas between them; read only with -group-role, for such a proxy")
    group_role: tuple[str, ...] = flag((), "GROUP=ROLE: what the members of a group may do: view, "
        "operate or destroy; *=ROLE for whoever has logged in (may be given several times)")
    logout_url: str = flag("", "where Log out leads when a proxy has logged the user in, such as "
        "/oauth2/sign_out")
    oidc_issuer: str = flag("", "URL of an OIDC provider that logs people in; -group-role says "
        "what they may do")
    oidc_client_id: str = flag("", "what that provider calls nsqadmin")
    oidc_client_secret_file: str = flag("", "file with the secret that it has given, if it has")
    oidc_redirect_url: str = flag("", "where it sends people back: https://<this "
        "nsqadmin>/login/oidc/callback")
    oidc_scopes: str = flag("openid email profile", "what it is asked for")
    oidc_groups_claim: str = flag("groups", "where its token has the user's groups; may be inside "
        "another: realm_access.roles")
    oidc_root_ca_file: str = flag("", "authorities for its certificate")
    allow_config_from_cidr: str = flag("127.0.0.1/8", "network that may use /config; empty for all")
    notification_http_endpoint: str = flag("", "URL to POST every action to")
    graphite_url: str = flag("", "URL of graphite")
    proxy_graphite: bool = flag(False, "serve graphite's /render through nsqadmin")
    statsd_prefix: str = flag("nsq.%s", "prefix of nsqd's statsd keys; %s is the host")
    statsd_interval_ns: int = flag(60 * limits.SECOND, "interval at which nsqd reports to statsd",
        bounds=(1, None))
    statsd_counter_format: str = flag("stats.counters.%s.count", "statsd's key of a counter")
    statsd_gauge_format: str = flag("stats.gauges.%s", "statsd's key of a gauge")
    http_client_connect_timeout_ns: int = CONNECT_TIMEOUT
    http_client_request_timeout_ns: int = REQUEST_TIMEOUT
    http_client_tls_insecure_skip_verify: bool = flag(False, "accept any certificate of an nsqd or "
        "nsqlookupd")
    http_client_tls_root_ca_file: str = CLIENT_CA
    http_client_tls_cert: str = CLIENT_CERT
    http_client_tls_key: str = CLIENT_KEY
    # --- ours ---
    http_client_secret_file: str = flag("", "file with the secret that nsqds and nsqlookupds want "
        "for changes (their -http-secret-file)")
    data_path: str = flag("", "directory for users, history and the audit log; by default "
        "penstock/nsqadmin in the user's state directory")
    trusted_proxy_cidr: tuple[str, ...] = flag(TRUSTED_BY_DEFAULT, "networks whose "
        "-acl-http-header is believed (may be given several times); name your proxy where somebody "
        "has to log in, or when it passes on its own host name")
    login: str = flag("auto", "auto: asked for once there are users; required; off",
        choices=("auto", "required", "off"))
    read_only: str = flag("auto", "auto: whoever has not logged in may only look, when listening "
        "beyond loopback; true: nobody may change anything; false",
        choices=("auto", "true", "false"))
    secure_cookie: bool = flag(False, "send the session only over HTTPS (a proxy in front speaks "
        "it)")
    session_lifetime_ns: int = flag(12 * 3600 * limits.SECOND, "a log-in ends after this long "
        "without use", bounds=(limits.SECOND, None))
    poll_interval_ns: int = flag(limits.SECOND, "how often nsqds are asked, at most",
        bounds=(limits.SECOND // 10, None))
    history_retention_ns: int = flag(48 * 3600 * limits.SECOND, "how long charts go back",
        bounds=(60 * limits.SECOND, None))
    mask_field: tuple[str, ...] = flag((), "field of JSON messages, or header, whose value is not "
        "shown (may be given several times)")
    lake: tuple[str, ...] = flag((), "directory with the tables of archive and trace (may be given "
        "several times)")
    trace_table: tuple[str, ...] = flag((), "table of the pipeline trace, for lives that the log "
        "no longer holds (may be given several times)")
    # fmt: on

    @property
    def tls_files(self) -> TlsFiles:
        return TlsFiles(
            self.http_client_tls_root_ca_file,
            self.http_client_tls_cert,
            self.http_client_tls_key,
            self.http_client_tls_insecure_skip_verify,
        )


FLAGS = flags_of(Options)


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises UsageError, ConfigError and HelpWanted (`command/flags.py`)."""
    values = resolve(FLAGS, arguments, environment)
    values["base_path"] = normal_base(values["base_path"])
    values["data_path"] = values["data_path"] or default_data_path(environment)
    options = options_of(Options, values)
    if not options.version:
        _check(options)
    return options


def _check(options: Options) -> None:
    lookupds, nsqds = options.lookupd_http_address, options.nsqd_http_address
    if not (lookupds or nsqds):
        raise FatalOption("--nsqd-http-address or --lookupd-http-address required")
    if lookupds and nsqds:
        raise FatalOption("use --nsqd-http-address or --lookupd-http-address not both")
    if options.http_client_tls_cert and not options.http_client_tls_key:
        raise FatalOption("--http-client-tls-key must be specified with --http-client-tls-cert")
    if options.http_client_tls_key and not options.http_client_tls_cert:
        raise FatalOption("--http-client-tls-cert must be specified with --http-client-tls-key")
    read_network("allow-config-from-cidr", options.allow_config_from_cidr or "0.0.0.0/0")
    for text in options.trusted_proxy_cidr:
        read_network("trusted-proxy-cidr", text)
    _check_oidc(options)
    if not options.logout_url.startswith("/"):
        _check_url("logout-url", options.logout_url)
    for name in ("graphite_url", "notification_http_endpoint"):
        _check_url(name.replace("_", "-"), getattr(options, name))


def is_safe_url(text: Any) -> bool:
    """https, or this machine."""
    try:
        parts = urlsplit(text)
    except (ValueError, TypeError, AttributeError):
        return False
    host = parts.hostname or ""
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    )


def _check_oidc(options: Options) -> None:
    if not options.oidc_issuer:
        return
    for name in ("oidc_issuer", "oidc_redirect_url"):
        text, flag = getattr(options, name), name.replace("_", "-")
        _check_url(flag, text)
        if not is_safe_url(text):
            raise ConfigError(flag, text, "it has to be https://..., except on this machine")
    if not options.oidc_client_id:
        raise ConfigError("oidc-client-id", "", "it is needed with -oidc-issuer")
    ours = f"{options.base_path.rstrip('/')}{CALLBACK}"
    if urlsplit(options.oidc_redirect_url).path != ours:
        raise ConfigError("oidc-redirect-url", options.oidc_redirect_url, f"its path is {ours}")
    if "openid" not in options.oidc_scopes.split():
        raise ConfigError("oidc-scopes", options.oidc_scopes, "openid has to be among them")


class FatalOption(ConfigError):
    """Options that contradict each other, in the official words."""

    def __init__(self, words: str) -> None:
        super().__init__("options", "", words)
        self.args = (words,)


def read_network(name: str, text: str) -> Network:
    """`text` is "address/bits"; the host's bits may be anything, as Go allows."""
    try:
        if "/" not in text:
            raise ValueError
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(name, text, "it is not a network like 127.0.0.1/8") from error


def _check_url(name: str, text: str) -> None:
    if not text:
        return
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigError(name, text, "it is no URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(name, text, "it is not http://host or https://host")


def normal_base(text: str) -> str:
    """ "/", or "/with/a/slash/in/front/only"."""
    stripped = text.strip("/")
    if any(part in ("", ".", "..") for part in stripped.split("/")) and stripped:
        raise ConfigError("base-path", text, "it is not a path like /nsqadmin")
    return f"/{stripped}"


def default_data_path(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = str(Path.home() / ".local" / "state")
    return str(Path(state) / "penstock" / "nsqadmin")
