async () => {
  const shown = document.querySelector('.shown-body');
  if (navigator.clipboard) await navigator.clipboard.writeText(shown.textContent);
  else { getSelection().selectAllChildren(shown); document.execCommand('copy'); }
  emit(); }
