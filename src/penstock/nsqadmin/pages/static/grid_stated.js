(p) => {
  if (!p.value) return '';
  const level = p.data.LEVEL || 'soft';
  if (level === 'plain') return p.value;
  const badge = document.createElement('span');
  badge.className = 'badge ' + level; badge.textContent = p.value;
  return badge; }
