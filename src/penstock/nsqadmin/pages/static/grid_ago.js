const s = Math.max(0, Math.round(Date.now() / 1000 - at));
  const [n, unit] = s < 60 ? [s, 's'] : s < 3600 ? [s / 60, 'min']
    : s < 172800 ? [s / 3600, 'h'] : [s / 86400, 'd'];
  return Math.floor(n) + ' ' + unit + ' ago';
