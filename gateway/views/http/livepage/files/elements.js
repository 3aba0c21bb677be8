// Makes and updates elements. Text is always set as text, so that nothing that a user's data contains can be markup.

// make("p", {class: "quiet"}, "text", otherElement)
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

// Keeps one child of the container for each item, in their order: elements that stay keep their focus and their state.
export class Keyed {
  // create(item) returns an object with `element` and `update(item)`.
  constructor(container, keyOf, create) {
    this.container = container;
    this.keyOf = keyOf;
    this.create = create;
    this.views = new Map();
  }

  update(items) {
    const left = new Set(this.views.keys());
    let place = this.container.firstElementChild;
    for (const item of items) {
      const key = this.keyOf(item);
      left.delete(key);
      let view = this.views.get(key);
      if (view === undefined) {
        view = this.create(item);
        this.views.set(key, view);
      }
      if (view.element === place) place = place.nextElementSibling;
      else this.container.insertBefore(view.element, place);
      view.update(item);
    }
    for (const key of left) {
      const view = this.views.get(key);
      view.remove?.();
      view.element.remove();
      this.views.delete(key);
    }
  }
}

// A list of figures: each has a name, a value with its unit, and perhaps a line that explains the value.
export class Figures {
  constructor(names) {
    this.values = {};
    this.notes = {};
    this.element = make("dl");
    for (const [key, name] of Object.entries(names)) {
      this.values[key] = make("span");
      this.notes[key] = make("small");
      this.element.append(make("div", {}, make("dt", {}, name), make("dd", {}, this.values[key], this.notes[key])));
    }
  }

  set(key, value, note = "", kind = "") {
    say(this.values[key], value);
    say(this.notes[key], note);
    if (this.values[key].className !== kind) this.values[key].className = kind;
  }
}
