(p) => {
  if (p.value == null) return '';
  const box = document.createElement('div'), bar = document.createElement('progress');
  const said = document.createElement('span');
  box.className = 'share'; bar.max = 100; bar.value = p.value;
  said.textContent = Math.floor(p.value) + ' %';
  bar.setAttribute('aria-label', 'Done'); box.append(bar, said);
  return box; }
