// A small service with NestJS. PORT, RATELIMIT_SOCKET and TIMEOUT_MS come from the environment.
import 'reflect-metadata'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  Body,
  Controller,
  Get,
  Header,
  HttpCode,
  HttpStatus,
  Module,
  Post,
  Query,
  Req,
  Res,
  UseGuards,
} from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import type { Request, Response } from 'express'
import { RateLimiter } from 'ratelimitd'
import { rateLimit } from 'ratelimitd/express'
import { NOT_LIMITED, RateLimit, RateLimitGuard, RateLimitModule, ip } from 'ratelimitd/nest'
import { AttacksModule, findsUser } from './nest-attacks.js'

const limiter = new RateLimiter({ timeoutMs: Number(process.env.TIMEOUT_MS ?? 250) })
/** The name of the account, or `-`: a body may have anything in its place, or nothing. */
const account = (body?: { user?: unknown } | null): string => (typeof body?.user === 'string' && body.user) || '-'
const address = ip()
const Text = (): MethodDecorator => Header('Content-Type', 'text/plain; charset=utf-8')

@Controller()
@UseGuards(RateLimitGuard)
class Service {
  @RateLimit('web')
  @Get('ok')
  @Text()
  ok(): string {
    return 'ok\n'
  }

  // only wrong passwords count
  @RateLimit({
    policy: 'login',
    key: (req, res) => [account(req.body), address(req, res)],
    onError: 'deny',
    chargeWhen: (_req, res) => res.statusCode === 401,
  })
  @Post('login')
  @HttpCode(200)
  @Text()
  login(@Body() form: { password?: string } | undefined, @Res({ passthrough: true }) res: Response): string {
    if (form?.password === 'right') return 'welcome\n'
    res.status(HttpStatus.UNAUTHORIZED)
    return 'wrong\n'
  }

  @RateLimit({ limit: 2, window: '5s' })
  @Get('inline')
  @Text()
  inline(): string {
    return 'inline\n'
  }

  @RateLimit('web', { policy: 'tenant', key: (req) => req.get('X-Tenant') || NOT_LIMITED })
  @Get('two')
  @Text()
  two(): string {
    return 'two\n'
  }

  @RateLimit({ policy: 'slow', slot: true })
  @Get('slow')
  @Text()
  async slow(@Query('ms') ms = '0'): Promise<string> {
    await sleep(Number(ms))
    return 'slow\n'
  }

  @RateLimit({ policy: 'stream', slot: true })
  @Get('stream')
  async stream(@Res() res: Response): Promise<void> {
    res.type('text')
    for (const chunk of ['one\n', 'two\n', 'three\n']) {
      res.write(chunk)
      await sleep(100)
    }
    res.end()
  }

  @RateLimit({ policy: 'budget', cost: (req) => Number(req.query.n) })
  @Get('cost')
  @Text()
  cost(@Query('n') n: string): string {
    return `cost ${n}\n`
  }

  @RateLimit({ policy: 'login', skip: (req) => req.get('X-Probe') === 'yes' })
  @Get('skip')
  @Text()
  skip(): string {
    return 'skip\n'
  }

  // limits by the request, the decision in the handler, and answers of the program's own
  @RateLimit({
    name: 'plan',
    limit: (req) => (req.get('X-Plan') === 'gold' ? 3 : 1),
    window: (req) => (req.get('X-Plan') === 'gold' ? '30s' : '60s'),
  })
  @Get('plan')
  @Text()
  plan(): string {
    return 'plan\n'
  }

  @RateLimit({ policy: (req) => (req.query.policy === 'free' ? NOT_LIMITED : req.query.policy) })
  @Get('choose')
  @Text()
  choose(): string {
    return 'choose\n'
  }

  @RateLimit('web')
  @Get('left')
  @Text()
  left(@Req() { rateLimit: decision }: Request): string {
    return decision ? `left ${decision.remaining} of ${decision.of}\n` : 'left unknown\n'
  }

  @RateLimit({ name: 'guess', limit: 2, window: '1m', chargeWhen: (_req, res) => res.statusCode === 403 })
  @Get('guess')
  @Text()
  guess(@Query('right') right: string, @Res({ passthrough: true }) res: Response): string {
    if (right === 'yes') return 'right\n'
    res.status(HttpStatus.FORBIDDEN)
    return 'wrong\n'
  }

  @RateLimit({
    policy: 'budget',
    cost: (req) => Number(req.query.n),
    headers: 'both',
    respond: (_req, res) =>
      res.status(418).set({ 'Retry-After': '99', 'X-RateLimit-Limit': '99' }).type('text').send('slow down\n'),
  })
  @Get('own')
  @Header('X-RateLimit-Limit', '99')
  @Text()
  own(): string {
    return 'own\n'
  }

  @RateLimit({ policy: 'web', onError: 'deny' })
  @Get('down')
  @Text()
  down(): string {
    return 'down\n'
  }
}

@Module({ imports: [RateLimitModule.forRoot({ limiter }), AttacksModule], controllers: [Service] })
class App {}

const app = await NestFactory.create(App, { logger: ['error', 'warn'] })
app.use(findsUser)
app.use('/attack/strict', rateLimit(limiter, 'strict')) // of ratelimitd/express: in front of Nest
await app.listen(Number(process.env.PORT), '127.0.0.1')
console.log('ready')
process.once('SIGTERM', () => process.exit())
