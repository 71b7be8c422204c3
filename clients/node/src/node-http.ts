/*
 * What the frameworks on node:http have in common.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Field, isJoined, joined } from './http.js'
import { type Verdict, fieldsOf } from './middleware.js'

export function headerOf(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name]

  return Array.isArray(value) ? value.join(', ') : value
}

/** `close` comes after the last byte, and when the client hangs up. */
export function onResponseEnd(response: ServerResponse, ended: (isAnswered: boolean) => void): void {
  if (response.closed) ended(response.writableEnded)
  else response.once('close', () => ended(response.writableEnded))
}

/** Writes the fields of this place and of those before it. */
export function addFields(response: ServerResponse, verdict: Verdict): void {
  if (response.headersSent || verdict.visit === null) return
  const fields = fieldsOf(verdict)
  for (const [name, value] of fields)
    response.setHeader(name, joined(name, response.getHeader(name), value, verdict.visit.written))
  keepFields(response, fields)
}

type Head = [status: number, ...rest: unknown[]]

const kept = new WeakMap<ServerResponse, Map<string, Field>>() // by their names in small letters

/** What the application sets later does not replace Retry-After and the X-RateLimit fields. */
export function keepFields(response: ServerResponse, fields: readonly Field[]): void {
  const own = fields.filter(([name]) => !isJoined(name))
  if (own.length === 0) return
  const known = kept.get(response)
  const all = known ?? new Map<string, Field>()
  for (const field of own) all.set(field[0].toLowerCase(), field)
  if (known) return

  kept.set(response, all)
  const writeHead = response.writeHead as unknown as (...head: Head) => ServerResponse
  response.writeHead = ((...head: Head) => {
    const headers = head.at(-1)
    if (Array.isArray(headers)) head[head.length - 1] = withoutPairs(headers as unknown[], all)
    else if (typeof headers === 'object' && headers !== null)
      head[head.length - 1] = Object.fromEntries(
        Object.entries(headers).filter(([name]) => !all.has(name.toLowerCase())),
      )

    for (const [name, value] of all.values()) response.setHeader(name, value)
    return writeHead.apply(response, head)
  }) as typeof response.writeHead
}

/** A flat list of names and values. */
function withoutPairs(headers: readonly unknown[], names: ReadonlyMap<string, Field>): unknown[] {
  return headers.filter((_, i) => !names.has(String(headers[i - (i % 2)]).toLowerCase()))
}

/** Answers a request that does not go on: by the limit's `respond`, or with the usual 429 or 503. */
export async function answer(response: ServerResponse, verdict: Verdict & { passes: false }): Promise<void> {
  const { denial, respond } = verdict
  addFields(response, verdict)
  if (respond) {
    await respond(denial)
    return
  }

  response.statusCode = denial.status
  response.setHeader('Content-Type', denial.contentType)
  response.setHeader('Content-Length', Buffer.byteLength(denial.body))
  response.end(denial.body)
}
