// This browser's statements, the last first; a browser that keeps nothing has none.
return (() => { try {
  const found = JSON.parse(localStorage.getItem('penstock.sql') || '[]');
  return found.filter((one) => typeof one === 'string').slice(0, 20);
} catch { return []; } })();
