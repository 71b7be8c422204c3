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

/** Names that programs have by accident. */
const USUAL_NAMES = ['app', 'main', '__main__', 'FastAPI']

/** What the log says about it: a warning where other programs on this daemon may share the counters. */
export function serviceLine({ name, from }: Service): string {
  if (from !== '' && !USUAL_NAMES.includes(name))
    return `limits at endpoints count ${name === '' ? 'without a service' : `for the service ${name}`} (from ${from})`

  return (
    `warning: ${from === '' ? 'no service is given' : `the service is ${name} (from ${from})`}: limits at endpoints share ` +
    'their counters with all such programs on one daemon. Set the option service, or RATELIMIT_SERVICE'
  )
}
