/*
 * The service in front of the keys of limits that are written at an endpoint: equal settings share their counters, so
 * endpoints of equal names in different programs would.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export interface Service {
  readonly name: string
  /** where the name is from; '': there is none */
  readonly from: string
}

/** `own`: the program's own name, null where it has none. */
export function serviceOf(option: string | undefined, env: NodeJS.ProcessEnv, own: string | null): Service {
  if (option !== undefined) return { name: option, from: 'the option service' }
  for (const variable of ['RATELIMIT_SERVICE', 'OTEL_SERVICE_NAME']) {
    const name = env[variable]
    if (name !== undefined) return { name, from: `$${variable}` }
  }

  return own ? { name: own, from: 'package.json' } : { name: '', from: '' }
}

/** The name in the package.json of the program; null without one. */
export function packageName(program = process.argv[1]): string | null {
  for (let folder = program && dirname(program); folder && folder !== dirname(folder); folder = dirname(folder)) {
    try {
      const { name } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name?: unknown }
      return typeof name === 'string' && name !== '' ? name : null
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return null
    }
  }
  return null
}
