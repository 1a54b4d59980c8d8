// Sorts a table, each group of its rows by itself, by the column that is clicked: upwards at first and then downwards.
const number = (cell) => ("number" in cell.dataset ? Number(cell.dataset.number) : NaN);
const compare = (one, other) => {
  const [a, b] = [number(one), number(other)];
  if (Number.isNaN(a) && Number.isNaN(b)) return one.textContent.localeCompare(other.textContent);
  return Number.isNaN(a) ? 1 : Number.isNaN(b) ? -1 : a - b;
};
for (const head of document.querySelectorAll("thead th")) {
  head.addEventListener("click", () => {
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const other of head.parentElement.cells) other.ariaSort = "none";
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    for (const body of head.closest("table").tBodies) {
      const rows = [...body.rows].filter((row) => row.querySelector("td"));
      rows.sort((a, b) => sign * compare(a.cells[head.cellIndex], b.cells[head.cellIndex]));
      body.append(...rows);
    }
  });
}
