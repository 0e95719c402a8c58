(e) => {
  const field = document.querySelector('.statement textarea');
  field.setRangeText(e.currentTarget.dataset.name, field.selectionStart, field.selectionEnd, 'end');
  field.dispatchEvent(new Event('input', {bubbles: true}));
  field.focus(); }
