async (e) => {
  const file = e.target.files[0];
  if (!file) return;
  const field = document.querySelector('.definitions textarea');
  field.value = await file.text();
  field.dispatchEvent(new Event('input', {bubbles: true}));
  e.target.value = ''; }
