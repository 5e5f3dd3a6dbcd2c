// Excerpts of search results come from the article, not from the buttons and the contents above it.
(() => {
  "use strict";
  const textOf = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const main = page.querySelector('[role="main"]');
    const article = page.querySelector("article.bd-article");
    if (main && article) main.replaceChildren(article);
    page.querySelectorAll(".sl-table").forEach((table) => table.remove());
    return textOf(page.documentElement.outerHTML, anchor);
  };
})();
