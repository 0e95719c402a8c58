async () => {
  if (navigator.clipboard) { await navigator.clipboard.writeText(location.href); emit(true); }
  else emit(false); }
