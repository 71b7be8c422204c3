/*
 * The endpoint of an Express limit as its author wrote it: `GET /t/:tenant/search`. Nothing in it is what the client wrote:
 * Express matches without regard to case, and request.baseUrl has the values of a mount's parameters, so that every
 * spelling would have a budget of its own.
 *
 * Express 4 and 5 do not tell where a handler is mounted, so the place of a limit's handler is looked up in the stacks of
 * the application's routers, once.
 */
import type { Request } from 'express'
import { type Endpoint, endpointName, noPattern } from './middleware.js'

interface Route {
  readonly path: unknown
  readonly methods: Readonly<Record<string, boolean>>
  readonly stack: readonly { readonly handle: unknown; readonly method?: string | undefined }[] // no method: every one
}

interface Layer {
  readonly handle: unknown
  readonly route?: Route | undefined
  readonly rawPath?: unknown // Express 5.2 and later
  readonly regexp?: (RegExp & { readonly fast_slash?: boolean }) | undefined // Express 4
  readonly keys?: readonly { readonly name: string | number }[] // Express 4
  readonly path?: string | undefined // of the last match
  match(path: string): unknown
}

interface Router {
  readonly stack: readonly Layer[]
}

interface Application {
  readonly parent?: Application | undefined
  readonly mountpath?: unknown
  readonly _router?: Router | undefined
  readonly router?: Router | undefined
}

/** Where a handler stands: below these mounts, in a route or in front of routes of this router. */
interface Place {
  readonly router: Router
  readonly mounts: readonly Layer[]
  readonly path: string
  readonly route: Route | undefined
}

function textOf(pattern: unknown): string {
  if (Array.isArray(pattern)) return pattern.map(textOf).join('|')
  const text = pattern instanceof RegExp ? pattern.source : String(pattern ?? '')
  return text === '/' ? '' : text
}

/** Of a mount; `index`: its place in the router's stack, which names it where Express keeps no pattern. */
function patternOf(layer: Layer, index: number): string {
  if (layer.rawPath !== undefined) return textOf(layer.rawPath)
  if (layer.regexp === undefined) return `/#${index}`
  if (layer.regexp.fast_slash) return ''

  return patternIn(layer.regexp.source, layer.keys ?? [])
}

/** What Express 4 made this expression of; the expression itself where it is more than names and parameters. */
function patternIn(source: string, keys: readonly { readonly name: string | number }[]): string {
  const names = keys.map(({ name }) => `:${name}`)
  const pattern = source
    .replace(/^\^/, '')
    .replace(/\\\/\?\(\?=\\\/\|\$\)$/, '')
    .replace(/\(\?:(?:\\(\/))?\(\[\^\\?\/\]\+\?\)\)/g, (_, slash?: string) => `${slash ?? ''}${names.shift() ?? ':'}`)
    .replace(/\\([/.-])/g, '$1')

  return /[()[\]?*+\\^$|]/.test(pattern) ? source : pattern
}

function* placesIn(router: Router, mounts: readonly Layer[], path: string, seen: ReadonlySet<Router>): Iterable<Place> {
  if (seen.has(router)) return

  for (const [index, layer] of router.stack.entries()) {
    const inner = layer.handle as Partial<Router> | undefined
    if (layer.route) {
      yield { router, mounts, path: path + textOf(layer.route.path), route: layer.route }
    } else if (inner && Array.isArray(inner.stack)) {
      yield* placesIn(inner as Router, [...mounts, layer], path + patternOf(layer, index), new Set([...seen, router]))
    } else {
      yield { router, mounts: [...mounts, layer], path: path + patternOf(layer, index), route: undefined }
    }
  }
}

function holds(place: Place, handler: unknown): boolean {
  if (place.route) return place.route.stack.some(({ handle }) => handle === handler)

  return place.mounts.at(-1)!.handle === handler
}

/** Does the request stand below the place's mounts? */
function isBelow(place: Place, baseUrl: string): boolean {
  let rest = baseUrl
  for (const mount of place.mounts) {
    if (!mount.match(rest === '' ? '/' : rest)) return false
    rest = rest.slice((mount.path ?? '').length)
  }
  return true
}

function prefixOf(app: Application): string {
  return app.parent ? prefixOf(app.parent) + textOf(app.mountpath) : ''
}

/** Finds the endpoint of one handler for each request. */
export class Endpoints {
  readonly #places = new WeakMap<Application, Place[]>()

  of(request: Request, handler: unknown): Endpoint {
    const app = request.app as unknown as Application
    const places = this.#placesOf(app, handler)
    const route = request.route as Route | undefined
    const possible = places.length > 1 ? places.filter((place) => !place.route || place.route === route) : places
    const place = possible.length > 1 ? possible.find((one) => isBelow(one, request.baseUrl)) : possible[0]

    if (place?.route) return named(place.route, handler, prefixOf(app) + place.path)
    if (place) {
      const name = prefixOf(app) + place.path
      return { name, owner: name === '' ? null : place.router }
    }
    if (!route) throw noPattern('Express') // a wrapped handler is in no stack
    return named(route, handler, prefixOf(app) + textOf(route.path))
  }

  #placesOf(app: Application, handler: unknown): Place[] {
    const known = this.#places.get(app)
    if (known) return known

    const router = app._router ?? app.router
    const found = router ? [...placesIn(router, [], '', new Set())].filter((place) => holds(place, handler)) : []
    this.#places.set(app, found)
    return found
  }
}

/** With the methods that this handler stands at, or the route's where it is wrapped. */
function named(route: Route, handler: unknown, path: string): Endpoint {
  const own = route.stack.filter(({ handle }) => handle === handler)
  const layers = own.length > 0 ? own : route.stack
  const methods = layers.map(({ method }) => method ?? 'all')

  return { name: endpointName(methods, path === '' ? '/' : path), owner: route }
}

/** What the route of this request calls right behind a handler. */
export function handlersBehind(request: Request, handler: unknown): readonly unknown[] {
  const route = request.route as Route | undefined
  const used = request.method === 'HEAD' && route?.methods['head'] !== true ? 'get' : request.method.toLowerCase()
  const called = (route?.stack ?? []).filter(({ method }) => method === undefined || method === used)
  const at = called.findIndex(({ handle }) => handle === handler)

  return at < 0 ? [] : called.slice(at + 1).map(({ handle }) => handle)
}
