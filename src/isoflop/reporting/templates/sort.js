// A click on a column's head sorts its table: by number where the cells have one, else by text. Blanks stay last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const up = head.getAttribute("aria-sort") !== "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      const text = cell.textContent.trim();
      if ("sort" in cell.dataset) return Number(cell.dataset.sort);
      return text === "" || text === "n/a" ? null : text;
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" && typeof b === "number"
        ? a - b
        : String(a).localeCompare(String(b), "en", { numeric: true });
      return up ? order : -order;
    });
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows.map(([, row]) => row));
  });
}
