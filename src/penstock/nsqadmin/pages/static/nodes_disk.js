(p) => {
  if (p.value == null) return '';
  const box = document.createElement('div'), bar = document.createElement('progress');
  const said = document.createElement('span');
  box.className = 'share'; bar.max = 100; bar.value = p.value; said.textContent = p.data.left;
  if (p.value > 90) bar.className = 'full';
  bar.setAttribute('aria-label', 'Disk used'); box.append(bar, said);
  return box; }
