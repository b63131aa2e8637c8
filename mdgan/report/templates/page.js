"use strict";

// A browser may refuse to store anything, for pages from files or in private windows.
const remember = (name, value) => { try { sessionStorage.setItem(name, value); } catch {} };
const recall = (name) => { try { return sessionStorage.getItem(name); } catch { return null; } };

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (systemIsDark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  root.dataset.theme = recall("theme") || "";
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember("theme", root.dataset.theme);
    label();
  });
  systemIsDark.addEventListener("change", label);
  label();
})();

(() => {
  const viewer = document.getElementById("viewer");
  let buttons = [];
  let place = 0;
  const show = (next) => {
    place = Math.min(Math.max(next, 0), buttons.length - 1);
    const image = buttons[place].querySelector("img").cloneNode();
    const caption = document.createElement("p");
    const what = document.createElement("span");
    const hint = document.createElement("span");
    what.textContent = image.alt;
    hint.textContent = `${place + 1} of ${buttons.length}, arrow keys`;
    caption.append(what, hint);
    viewer.replaceChildren(image, caption);
  };
  for (const film of document.querySelectorAll(".film, .last")) {
    const frames = [...film.querySelectorAll("button")];
    frames.forEach((frame, number) => frame.addEventListener("click", () => {
      buttons = frames;
      show(number);
      viewer.showModal();
    }));
  }
  viewer.addEventListener("click", () => viewer.close());
  viewer.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      show(place + step);
    }
  });
})();

(() => {
  // A page that reads itself again keeps the views that were chosen.
  for (const group of document.querySelectorAll(".switch")) {
    const figure = group.closest("figure");
    const buttons = [...group.querySelectorAll("button")];
    const views = figure.querySelectorAll(".view");
    const choose = (chosen) => {
      buttons.forEach((button) => button.setAttribute("aria-pressed", button === chosen));
      views.forEach((view, place) => { view.hidden = buttons[place] !== chosen; });
    };
    const before = recall(figure.id);
    const again = buttons.find((button) => button.textContent === before);
    if (again) {
      choose(again);
    }
    buttons.forEach((button) => button.addEventListener("click", () => {
      choose(button);
      remember(figure.id, button.textContent);
    }));
  }
})();

(() => {
  // A page that reads itself again comes back at the same place, with the same parts open.
  const parts = [...document.querySelectorAll("details")];
  const name = (part) => {
    const holder = part.closest("[id]");
    return `${holder.id} ${[...holder.querySelectorAll("details")].indexOf(part)}`;
  };
  const before = JSON.parse(recall("place") || "null");
  if (before) {
    remember("place", "null");
    parts.forEach((part) => { part.open = before.open.includes(name(part)); });
    addEventListener("load", () => scrollTo(0, before.top));
  }
  if (document.querySelector("meta[http-equiv=refresh]")) {
    addEventListener("pagehide", () => remember("place", JSON.stringify({
      top: scrollY, open: parts.filter((part) => part.open).map(name),
    })));
  }
})();
