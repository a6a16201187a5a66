// Tables that are wider than the page scroll: let the keyboard reach them.
document$.subscribe(() => setTimeout(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0
}))
