
"use strict";

const form = document.querySelector("form");
const source = document.querySelector("textarea");
const target = document.querySelector("output");
const button = document.querySelector("button");
const problem = document.querySelector("[role=alert]");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  if (!source.value) {
    target.textContent = "";
    return;
  }
  button.disabled = true;
  try {
    const body = { q: source.value, source: form.dataset.source, target: form.dataset.target };
    const response = await fetch("translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    if (response.ok) target.textContent = answer.translatedText;
    else problem.textContent = answer.error;
  } catch (error) {
    problem.textContent = "The server does not answer.";
  } finally {
    button.disabled = false;
  }
});

source.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
