try {
  const text = document.querySelector('.statement textarea').value.trim();
  const kept = JSON.parse(localStorage.getItem('penstock.sql') || '[]');
  const others = kept.filter((one) => one !== text);
  localStorage.setItem('penstock.sql', JSON.stringify([text, ...others].slice(0, 20)));
} catch { }
