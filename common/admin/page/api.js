// Requests to the API of the server that sent this page.

const LIMIT_MS = 10_000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  const reply = await fetch(`api/${path}`, {cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS), ...options});
  const text = await reply.text();
  if (reply.ok) return JSON.parse(text);
  let message = text.trim();
  try {
    message = JSON.parse(text).error;
  } catch {
    // A reply that no handler of the API wrote has a plain text.
  }
  throw new ApiError(reply.status, message);
}

export const get = (path) => request(path, {});

export const post = (path, message, token) => request(path, {
  method: "POST",
  headers: {"Content-Type": "application/json", "Authorization": `Bearer ${token}`},
  body: JSON.stringify(message),
});
