/*
 * What the frameworks on node:http have in common.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Field, joined } from './http.js'
import type { Verdict } from './middleware.js'

export function headerOf(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name]

  return Array.isArray(value) ? value.join(', ') : value
}

/** `close` comes after the last byte, and when the client hangs up. */
export function onResponseEnd(response: ServerResponse, ended: (isAnswered: boolean) => void): void {
  if (response.closed) ended(response.writableEnded)
  else response.once('close', () => ended(response.writableEnded))
}

export function addFields(response: ServerResponse, fields: readonly Field[]): void {
  if (response.headersSent) return
  for (const [name, value] of fields) response.setHeader(name, joined(name, response.getHeader(name), value))
}

/** Answers a request that does not go on: by the limit's `respond`, or with the usual 429 or 503. */
export async function answer(
  response: ServerResponse,
  { denial, respond }: Verdict & { passes: false },
): Promise<void> {
  addFields(response, denial.fields)
  if (respond) {
    await respond(denial)
    return
  }

  response.statusCode = denial.status
  response.setHeader('Content-Type', denial.contentType)
  response.setHeader('Content-Length', Buffer.byteLength(denial.body))
  response.end(denial.body)
}
