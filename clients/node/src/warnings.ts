/*
 * Mistakes that work, but not as meant. Each is reported once, as a warning of the process.
 */

const reported = new Set<string>()

export function warnOnce(message: string): void {
  if (reported.has(message)) return
  reported.add(message)
  process.emitWarning(message, 'RateLimitWarning')
}

/** `what` is made inside a request's handler: each request would get one of its own, and a limiter is a connection. */
export function warnInsideRequest(what: string): void {
  const frames = Error.stackTraceLimit
  Error.stackTraceLimit = 50
  const { stack = '' } = new Error()
  Error.stackTraceLimit = frames

  if (/\bparserOnIncoming\b/.test(stack))
    warnOnce(`${what} is made inside a request handler. Make it once, when the program starts`)
}
