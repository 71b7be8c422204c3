/*
 * An unknown option is a typing error, and a typing error must not mean "no limit".
 */

export function checkOptions(what: string, options: object, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw new TypeError(`${what}: the options are not an object`)

  for (const name in options)
    if (!known.includes(name) && (options as Record<string, unknown>)[name] !== undefined)
      throw new TypeError(`${what}: there is no option ${name}; there are ${known.join(', ')}`)
}

export function checkWholeMs(what: string, value: unknown, least: number): void {
  if (!Number.isSafeInteger(value) || (value as number) < least || (value as number) > 2 ** 31 - 1)
    throw new TypeError(
      `${what} is not a whole number of milliseconds from ${least} to ${2 ** 31 - 1}: ${String(value)}`,
    )
}
