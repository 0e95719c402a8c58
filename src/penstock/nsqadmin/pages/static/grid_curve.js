(p) => {
  if (!p.value || p.value.length < 2) return '';
  const values = [...p.value].map((one) => parseInt(one, 16)), last = values.length - 1;
  const points = values.map((one, at) => 100 * at / last + ',' + (22 - 1.3 * one)).join(' ');
  const make = (tag, of) => {
    const one = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(of)) one.setAttribute(name, value);
    return one; };
  const svg = make('svg', {viewBox: '0 0 100 24', preserveAspectRatio: 'none'});
  svg.append(make('polygon', {points: '0,24 ' + points + ' 100,24'}), make('polyline', {points}));
  const box = document.createElement('div');
  box.className = 'curve'; box.setAttribute('aria-hidden', 'true'); box.append(svg);
  return box; }
