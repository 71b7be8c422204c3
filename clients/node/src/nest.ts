/*
 * NestJS 11 and 12, on Express or Fastify:
 *
 *     @Module({ imports: [RateLimitModule.forRoot({ limiter })] })
 *     @UseGuards(RateLimitGuard)
 *     class Search { @RateLimit({ limit: 10, window: '5s' }) @Get() find() {} }
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  type ExecutionContext,
  HttpException,
  Inject,
  Injectable,
  Module,
  SetMetadata,
} from '@nestjs/common'
import { APP_FILTER, Reflector } from '@nestjs/core'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, Limits, type Verdict } from './middleware.js'
import { addFields, answer, headerOf, onResponseEnd } from './node-http.js'
import { checkOptions } from './options.js'

/** Of the platform: Express's or Fastify's. */
type Native = any
export type Args = [request: Native, response: Native]
export type { Denial, KeyValue, Limit, LimitInput } from './limits.js'

const LIMITS = 'ratelimitd:limits'
const SKIP = 'ratelimitd:skip'
const OPTIONS = 'ratelimitd:options'

export interface RateLimitModuleOptions {
  readonly limiter: RateLimiter
  /** for every handler that a guard protects, together with its own; default: none */
  readonly limits?: readonly LimitInput<Args>[] | undefined
}

/** On a handler or on a controller; limits of both apply, also of several decorators. */
export function RateLimit(...inputs: LimitInput<Args>[]): ClassDecorator & MethodDecorator {
  return (target: object, _name?: string | symbol, descriptor?: PropertyDescriptor): void => {
    const subject = (descriptor?.value ?? target) as object
    const before = (Reflect.getOwnMetadata(LIMITS, subject) ?? []) as LimitInput<Args>[]
    Reflect.defineMetadata(LIMITS, [...inputs, ...before], subject)
  }
}

/** No limit applies here, the module's included. */
export function SkipRateLimit(): ClassDecorator & MethodDecorator {
  return SetMetadata(SKIP, true)
}

function rawRequest(request: Native): IncomingMessage {
  return (request.raw ?? request) as IncomingMessage
}

function rawResponse(response: Native): ServerResponse {
  return (response.raw ?? response) as ServerResponse
}

function senderOf(request: Native): Sender {
  const raw = rawRequest(request)

  return {
    peer: raw.socket.remoteAddress,
    address: request.ip as string | undefined,
    believesAll: request.app?.get?.('trust proxy') === true || request.server?.initialConfig?.trustProxy === true,
    header: (name) => headerOf(raw, name),
  }
}

const keys = keysFor<Args>(senderOf)
/** The client's address; without options the address that the platform gives. */
export const ip: Keys<Args>['ip'] = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<Args>['user'] = keys.user

/** What the guard throws. The module's filter answers it; a filter of your own may catch it too. */
export class RateLimitException extends HttpException {
  constructor(readonly verdict: Verdict & { passes: false }) {
    const { denial } = verdict
    super(denial.contentType.includes('json') ? (JSON.parse(denial.body) as object) : denial.body.trim(), denial.status)
  }
}

@Catch(RateLimitException)
export class RateLimitFilter implements ExceptionFilter<RateLimitException> {
  async catch({ verdict }: RateLimitException, host: ArgumentsHost): Promise<void> {
    const response = host.switchToHttp().getResponse<Native>()
    if (!verdict.respond) response.hijack?.() // Fastify: the answer is written here
    await answer(rawResponse(response), verdict)
  }
}

@Injectable()
export class RateLimitGuard implements CanActivate {
  readonly #limits = new Map<unknown, Map<unknown, Limits<Args> | null>>() // by handler, by class

  constructor(
    @Inject(OPTIONS) private readonly options: RateLimitModuleOptions,
    @Inject(Reflector) private readonly reflector: Reflector,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true
    const limits = this.#limitsOf(context)
    if (limits === null) return true

    const http = context.switchToHttp()
    const request = http.getRequest<Native>()
    const response = http.getResponse<Native>()
    const exchange: Exchange = {
      ...senderOf(request),
      method: request.method as string,
      endpoint: () => `${context.getClass().name}.${context.getHandler().name}`,
      onEnd: (ended) => onResponseEnd(rawResponse(response), ended),
    }

    const verdict = await limits.admit(exchange, [request, response])
    if (!verdict.passes) throw new RateLimitException(verdict)
    addFields(rawResponse(response), verdict.fields)
    request.rateLimit = verdict.decision
    return true
  }

  /** Of the module, the class and the handler; checked when the handler is first asked for. */
  #limitsOf(context: ExecutionContext): Limits<Args> | null {
    const [handler, type] = [context.getHandler(), context.getClass()]
    const known = this.#limits.get(handler)?.get(type)
    if (known !== undefined) return known

    const isSkipped = this.reflector.getAllAndOverride<boolean | undefined>(SKIP, [handler, type]) === true
    const declared = [type, handler].flatMap(
      (target) => this.reflector.get<LimitInput<Args>[] | undefined>(LIMITS, target) ?? [],
    )
    const inputs = [...(this.options.limits ?? []), ...declared]
    const limits = isSkipped || inputs.length === 0 ? null : new Limits<Args>(this.options.limiter, inputs)
    const ofHandler = this.#limits.get(handler) ?? new Map<unknown, Limits<Args> | null>()
    this.#limits.set(handler, ofHandler.set(type, limits))
    return limits
  }
}

@Module({})
export class RateLimitModule {
  static forRoot(options: RateLimitModuleOptions): DynamicModule {
    checkOptions('RateLimitModule.forRoot', options, ['limiter', 'limits'])

    return {
      module: RateLimitModule,
      global: true,
      providers: [
        { provide: OPTIONS, useValue: options },
        RateLimitGuard,
        { provide: APP_FILTER, useClass: RateLimitFilter },
      ],
      exports: [OPTIONS, RateLimitGuard],
    }
  }
}
