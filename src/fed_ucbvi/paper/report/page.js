// Draws every plot of the page, lets legends hide and stress curves in all panels of a figure, and sorts tables.
const config = JSON.parse(document.getElementById("looks").textContent);

const tip = document.getElementById("tooltip");
const line = (name, text) => {
  const [dt, dd] = ["dt", "dd"].map((tag) => document.createElement(tag));
  [dt.textContent, dd.textContent] = [name, text];
  return [dt, dd];
};
const within = (place, size, whole) => Math.max(4, Math.min(place, whole - size - 4));
// Beside the pointer, and never beyond the window.
const tell = (_handler, event, _item, told) => {
  tip.hidden = !told;
  if (!told) return;
  tip.replaceChildren(...Object.entries(told).flatMap(([name, text]) => line(name, text)));
  const { width, height } = tip.getBoundingClientRect();
  const below = event.clientY + 16 + height < innerHeight;
  tip.style.left = `${within(event.clientX + 12, width, innerWidth)}px`;
  tip.style.top = `${within(below ? event.clientY + 16 : event.clientY - 12 - height, height, innerHeight)}px`;
};
addEventListener("scroll", () => (tip.hidden = true), { passive: true });

// Expressions are interpreted (ast), not compiled, so that the page's policy can forbid eval.
const OPTIONS = { config, actions: false, ast: true, renderer: "svg", tooltip: tell };

const draw = async (figure) => {
  const plots = [...figure.querySelectorAll(".plot")];
  const specs = JSON.parse(figure.querySelector("script").textContent);
  const buttons = [...figure.querySelectorAll(".legend button")];
  const views = [];
  const set = (name, value) => views.forEach((view) => view.signal(name, value).runAsync());
  const off = () => buttons.filter((one) => one.ariaPressed === "false").map((one) => one.dataset.value);
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.ariaPressed = String(button.ariaPressed === "false");
      set("hidden", off());
    });
    for (const event of ["pointerenter", "focus"]) {
      button.addEventListener(event, () => button.matches(":hover, :focus-visible") && set("stressed", button.dataset.value));
    }
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => set("stressed", ""));
  }
  for (const [place, plot] of plots.entries()) {
    const { view } = await vegaEmbed(plot, specs[place], OPTIONS);
    // How much room texts aslant below an axis need is known only once the width is.
    const fit = () => view.resize().runAsync();
    await fit();
    addEventListener("resize", () => setTimeout(fit));
    views.push(view);
    if (off().length) view.signal("hidden", off()).runAsync();
    await new Promise((done) => setTimeout(done)); // so that the page can be read meanwhile
  }
};

const number = (cell) => ("number" in cell.dataset ? Number(cell.dataset.number) : NaN);
const compare = (one, other) => {
  const [a, b] = [number(one), number(other)];
  if (Number.isNaN(a) && Number.isNaN(b)) return one.textContent.localeCompare(other.textContent);
  return Number.isNaN(a) ? 1 : Number.isNaN(b) ? -1 : a - b;
};
for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const other of head.parentElement.cells) other.ariaSort = "none";
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    const rows = [...body.rows].sort((a, b) => sign * compare(a.cells[head.cellIndex], b.cells[head.cellIndex]));
    body.append(...rows);
  });
}

// A plot has a width only once its figure is unfolded.
for (const figure of document.querySelectorAll("figure.chart")) {
  const details = figure.querySelector("details");
  const once = async () => {
    if (!details.open || figure.dataset.drawn) return;
    figure.dataset.drawn = "";
    await draw(figure);
    figure.dataset.drawn = "yes";
  };
  details.addEventListener("toggle", once);
  await once();
}
document.documentElement.dataset.plots = "drawn";
