// Finds faults of accessibility in the visible part of a page. The value of this expression is a list of texts.
(() => {
  const faults = [];
  const fault = (node, text) => faults.push(`${node.outerHTML.slice(0, 120)}: ${text}`);
  const visible = (node) => node.checkVisibility({visibilityProperty: true});
  const all = (selector) => [...document.querySelectorAll(selector)].filter(visible);

  if (!document.documentElement.lang) faults.push("the document names no language");
  if (!document.title) faults.push("the document has no title");
  if (all("h1").length !== 1) faults.push("the page needs one h1");
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) fault(heading, "a level of headings is left out");
    level = next;
  }
  const ids = new Set();
  for (const node of document.querySelectorAll("[id]")) {
    if (ids.has(node.id)) fault(node, "the id is used twice");
    ids.add(node.id);
  }
  for (const node of document.querySelectorAll("[aria-labelledby], label[for]")) {
    const id = node.getAttribute("aria-labelledby") ?? node.htmlFor;
    if (!ids.has(id)) fault(node, `there is no element ${id}`);
  }
  for (const input of all("input")) {
    if (input.labels.length === 0) fault(input, "the field has no label");
  }
  for (const node of all("button, a")) {
    if (!(node.getAttribute("aria-label") ?? node.textContent).trim()) fault(node, "the control has no name");
    if (node.getBoundingClientRect().height < 20) fault(node, "the control is too low for a finger");
  }
  for (const image of all("img")) {
    if (!image.hasAttribute("alt")) fault(image, "the image has no text");
  }
  for (const image of all("[role=img]")) {
    if (!image.getAttribute("aria-label")) fault(image, "the drawing has no text");
  }
  for (const table of all("table")) {
    if (!table.caption?.textContent) fault(table, "the table has no caption");
    for (const cell of table.querySelectorAll("th")) {
      if (!cell.scope) fault(cell, "the header cell has no scope");
    }
  }
  for (const box of all(".scroll")) {
    if (box.scrollWidth > box.clientWidth && box.tabIndex !== 0) fault(box, "the keyboard cannot scroll it");
  }

  // WCAG 2.1, contrast of texts: 4.5 for all sizes that this page uses.
  const luminance = (color) => {
    const [red, green, blue] = color.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const background = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let texts = 0;
  for (const node of all("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    if (!own || node.disabled) continue;
    ++texts;
    const [low, high] = [luminance(getComputedStyle(node).color), luminance(background(node))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) fault(node, `the contrast is ${contrast.toFixed(2)}`);
  }
  if (texts < 20) faults.push(`only ${texts} texts were looked at`);
  return faults;
})()
