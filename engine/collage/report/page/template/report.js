"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_FOUND = 60;
  const plans = JSON.parse(document.getElementById("data").textContent);

  // ---- colours of the page -------------------------------------------------------------------------------------
  const theme = document.getElementById("theme");
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  const label = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Change to light colours" : "Change to dark colours");
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  prefersDark.addEventListener("change", label);
  label();

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const shape = (name, attributes, parent) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };
  const shortened = (text, width) => {
    const most = Math.floor((width - 18) / 6.6);
    if (text.length <= most) return text;
    const head = Math.floor(most / 2);
    return text.slice(0, head) + "…" + text.slice(text.length - (most - head - 1));
  };

  class Viewer {
    constructor(article, plan) {
      this.name = article.id;
      this.levels = plan.levels;
      this.regions = plan.regions;
      this.root = article.querySelector(".viewer");
      this.canvas = this.root.querySelector(".canvas");
      this.panel = this.root.querySelector(".panel");
      this.trail = this.root.querySelector(".trail");
      this.found = this.root.querySelector(".found");
      this.root.hidden = false;
      this.index();
      const kernels = this.levels.model.boxes.filter((box) => box.kind === "kernel");
      const only = kernels.length === 1 && this.levels.model.boxes.every((box) => box.kind !== "operator");
      this.open(only ? kernels[0].opens : "model");
      if (only) this.describe(kernels[0]);
      this.listen(article);
    }

    /** Where each kernel and each operator is drawn: the level and the number of its box. */
    index() {
      this.kernels = new Map();
      this.operators = [];
      for (const [key, level] of Object.entries(this.levels)) {
        level.boxes.forEach((box, number) => {
          if (box.kind === "kernel") this.kernels.set(box.region, [key, number]);
          if (box.kind === "kernel" || box.kind === "operator") {
            this.operators.push({ text: `${box.label} ${box.detail || ""}`, lower: `${box.label} ${box.detail || ""}`.toLowerCase(), key, number });
          }
        });
      }
    }

    listen(article) {
      const on = (selector, act) => this.root.querySelector(selector).addEventListener("click", act);
      on(".in", () => this.zoom(1 / 1.4));
      on(".out", () => this.zoom(1.4));
      on(".fit", () => this.fit());
      on(".up", () => this.level.above && this.open(this.level.above));
      this.root.querySelector(".find").addEventListener("input", (event) => this.find(event.target.value));
      this.canvas.addEventListener("wheel", (event) => {
        // a page that is scrolled must not get stuck here
        if (!event.ctrlKey && !event.metaKey && !this.canvas.contains(document.activeElement)) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, event);
      }, { passive: false });
      this.canvas.addEventListener("pointerdown", (event) => this.drag(event));
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.refit()).observe(this.canvas);
      for (const piece of article.querySelectorAll(".piece")) {
        piece.addEventListener("click", () => this.show(piece.dataset.region));
      }
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return; // the browser's own
      const step = this.view.height / 8;
      const moves = { ArrowUp: [0, -step], ArrowDown: [0, step], ArrowLeft: [-step, 0], ArrowRight: [step, 0] };
      if (moves[event.key]) this.move(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.4);
      else if (event.key === "-") this.zoom(1.4);
      else if (event.key === "0") this.fit();
      else if (event.key === "Backspace" && this.level.above) this.open(this.level.above);
      else return;
      event.preventDefault();
    }

    /** Draw a level and, if a box is named, choose it and bring it into the middle. */
    open(key, number) {
      this.level = this.levels[key];
      this.current = key;
      this.canvas.replaceChildren();
      this.svg = shape("svg", { role: "group", "aria-label": this.level.title }, this.canvas);
      const tip = shape("marker", { id: `tip-${this.name}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, shape("defs", {}, this.svg));
      shape("path", { class: "tip", d: "M0,0L8,4L0,8Z" }, tip);
      for (const [, , path, values] of this.level.lines) {
        const line = shape("path", { class: "edge", d: path, "marker-end": `url(#tip-${this.name})` }, this.svg);
        shape("title", {}, line).textContent = values;
      }
      this.nodes = this.level.boxes.map((box, at) => this.draw(box, at));
      this.writeTrail();
      this.fit();
      if (number !== undefined) this.choose(number, true);
      else this.panel.replaceChildren(element("h3", this.level.title), element("p", "Choose a box to see what it holds, what else was measured, and why it is where it is."));
    }

    draw(box, number) {
      const [x, y, width, height] = box.at;
      const end = box.kind === "input" || box.kind === "output";
      const group = shape("g", {
        class: `node ${box.kind} ${end ? "end" : ""} ${box.colour || ""}`,
        role: "button", tabindex: "0",
      }, this.svg);
      shape("title", {}, group).textContent = [box.label, box.detail, box.value].filter(Boolean).join("\n");
      shape("rect", { x, y, width, height, rx: end ? height / 2 : 5 }, group);
      const middle = x + width / 2;
      shape("text", { x: middle, y: y + (box.detail ? 18 : height / 2 + 4) }, group).textContent = shortened(box.label, width);
      if (box.detail) {
        shape("text", { class: "detail", x: middle, y: y + 33 }, group).textContent = shortened(box.detail, width * 1.1);
      }
      group.addEventListener("click", () => this.moved || this.choose(number, false));
      group.addEventListener("dblclick", () => box.opens && this.open(box.opens));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        this.choose(number, false);
      });
      return group;
    }

    choose(number, centre) {
      for (const node of this.nodes) node.classList.remove("chosen");
      this.nodes[number].classList.add("chosen");
      const box = this.level.boxes[number];
      if (centre) {
        const [x, y, width, height] = box.at;
        const aspect = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
        const tall = Math.min(this.level.height + 40, 520);
        this.view = { x: x + width / 2 - (tall * aspect) / 2, y: y + height / 2 - tall / 2, width: tall * aspect, height: tall };
        this.apply();
      }
      this.describe(box);
    }

    /** Say in the panel what a box is. */
    describe(box) {
      const region = this.regions[box.region];
      const parts = [element("h3", box.kind === "kernel" && region ? `${box.region} ${region.title}` : box.label)];
      if (box.opens && box.opens !== this.current) {
        const opening = element("button", box.kind === "kernel" ? "Show its operators" : "Show what is in it", { type: "button", class: "open" });
        opening.addEventListener("click", () => this.open(box.opens));
        parts.push(opening);
      }
      const facts = element("dl");
      const say = (name, text) => facts.append(element("dt", name), element("dd", text));
      if (box.kind !== "kernel" && box.detail) say("name", box.detail);
      if (box.value) say(box.kind === "output" ? "value" : "computes", box.value);
      if (box.kind !== "kernel" && region) say("kernel", `${box.region} ${region.title}`);
      for (const [name, text] of region ? region.facts : []) say(name, text);
      parts.push(facts);
      if (region) {
        parts.push(element("p", region.why));
        const others = element("ul", undefined, { class: "others" });
        for (const other of region.others) others.append(element("li", other));
        parts.push(others);
        if (box.kind === "kernel") {
          parts.push(element("h4", `${region.count} ${region.count === 1 ? "operator" : "operators"}`));
          const operators = element("ul");
          for (const [operator, name] of region.operators) operators.append(element("li", `${operator} ${name}`));
          if (region.count > region.operators.length) operators.append(element("li", `and ${region.count - region.operators.length} more`));
          parts.push(operators);
        }
      }
      this.panel.replaceChildren(...parts);
      this.panel.scrollTop = 0;
    }

    show(region) {
      const place = this.kernels.get(region);
      if (place) this.open(...place);
    }

    find(text) {
      const wanted = text.trim().toLowerCase();
      const hits = wanted ? this.operators.filter((each) => each.lower.includes(wanted)) : [];
      const items = hits.slice(0, MOST_FOUND).map((hit) => {
        const item = element("li");
        const button = element("button", hit.text, { type: "button" });
        button.addEventListener("click", () => this.open(hit.key, hit.number));
        item.append(button);
        return item;
      });
      if (hits.length > MOST_FOUND) items.push(element("li", `and ${hits.length - MOST_FOUND} more`));
      if (wanted && !hits.length) items.push(element("li", "nothing found"));
      this.found.replaceChildren(...items);
    }

    writeTrail() {
      const steps = [];
      for (let key = this.current; key; key = this.levels[key].above) steps.unshift(key);
      this.trail.replaceChildren();
      steps.forEach((key, number) => {
        if (number) this.trail.append(" › ");
        if (key === this.current) {
          this.trail.append(this.levels[key].title);
          return;
        }
        const link = element("a", this.levels[key].title, { href: "#" });
        link.addEventListener("click", (event) => {
          event.preventDefault();
          this.open(key);
        });
        this.trail.append(link);
      });
    }

    // ---- zoom and pan --------------------------------------------------------------------------------------------
    fit() {
      const aspect = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
      const pad = 20;
      // a tall graph is shown from its top, at a size that can be read
      const height = Math.min(Math.max(this.level.height + 2 * pad, (this.level.width + 2 * pad) / aspect), Math.max(900, (this.level.width + 2 * pad) / aspect));
      const width = height * aspect;
      this.view = { x: this.level.width / 2 - width / 2, y: -pad, width, height };
      this.apply();
    }

    /** Keep what is seen when the canvas changes its shape. */
    refit() {
      const height = (this.view.width * this.canvas.clientHeight) / Math.max(1, this.canvas.clientWidth);
      this.view.y += (this.view.height - height) / 2;
      this.view.height = height;
      this.apply();
    }

    apply() {
      const { x, y, width, height } = this.view;
      this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
    }

    move(across, down) {
      this.view.x += across;
      this.view.y += down;
      this.apply();
    }

    zoom(factor, event) {
      const box = this.canvas.getBoundingClientRect();
      const at = event ? [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height] : [0.5, 0.5];
      const width = this.view.width * factor, height = this.view.height * factor;
      this.view.x += (this.view.width - width) * at[0];
      this.view.y += (this.view.height - height) * at[1];
      this.view.width = width;
      this.view.height = height;
      this.apply();
    }

    drag(down) {
      if (down.button !== 0 || !down.isPrimary) return;
      const start = { ...this.view };
      const scale = this.view.width / this.canvas.clientWidth;
      this.moved = false;
      const move = (event) => {
        const across = event.clientX - down.clientX, along = event.clientY - down.clientY;
        if (Math.abs(across) + Math.abs(along) > 4) this.moved = true;
        this.view.x = start.x - across * scale;
        this.view.y = start.y - along * scale;
        this.apply();
      };
      const end = () => {
        window.removeEventListener("pointermove", move);
        window.removeEventListener("pointerup", end);
        window.removeEventListener("pointercancel", end);
      };
      window.addEventListener("pointermove", move);
      window.addEventListener("pointerup", end);
      window.addEventListener("pointercancel", end);
    }
  }

  for (const article of document.querySelectorAll(".plan")) {
    const plan = plans[Number(article.dataset.plan)];
    if (plan.levels.model) article.viewer = new Viewer(article, plan);
  }
})();
