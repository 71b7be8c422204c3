// The routes of the table of attacks (clients/conformance/attacks.yaml), with NestJS.
import {
  All,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Module,
  Next,
  Param,
  Post,
  Req,
  Res,
  UnauthorizedException,
  UseGuards,
} from '@nestjs/common'
import { RouterModule } from '@nestjs/core'
import type { NextFunction, Request, Response } from 'express'
import { NOT_LIMITED, RateLimit, RateLimitGuard, ip, isPreflight, user } from 'ratelimitd/nest'

const Text = (): MethodDecorator => Header('Content-Type', 'text/plain; charset=utf-8')
const inline = { limit: 2, window: '1m' }
const apiKey = (req: Request): string | undefined => req.get('X-Api-Key')
const address = ip()
const jsonUser = (req: Request): string | undefined =>
  req.is('json') && typeof req.body?.user === 'string' ? req.body.user : undefined
type Visitor = Request & { user?: string | undefined }
const found = user((req: Visitor) => req.user)

/** A hook of the whole application. */
export function findsUser(req: Visitor, _res: Response, next: NextFunction): void {
  if (req.path === '/attack/late-hook') req.user = req.get('X-User')
  next()
}

class NeedsUser implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const req = context.switchToHttp().getRequest<Visitor>()
    req.user = req.get('X-User')
    if (req.user === undefined) throw new UnauthorizedException()
    return true
  }
}

function forward(req: Request, res: Response, next: NextFunction, path: string): void {
  req.url = path
  req.app(req, res, next)
}

@Controller('attack')
@UseGuards(RateLimitGuard)
class Attacks {
  @RateLimit({ policy: 'never', onError: 'deny' })
  @All('any')
  @Text()
  any(): string {
    return 'any\n'
  }

  @RateLimit({ policy: 'never', skip: isPreflight })
  @All('preflight')
  @Text()
  preflight(): string {
    return 'preflight\n'
  }

  @RateLimit({ policy: 'never', key: apiKey })
  @Get('key')
  @Text()
  key(): string {
    return 'key\n'
  }

  @RateLimit({ policy: 'never', key: apiKey, onError: 'allow' })
  @Get('key-allowed')
  @Text()
  keyAllowed(): string {
    return 'key-allowed\n'
  }

  @RateLimit({ policy: 'never', key: apiKey })
  @Get('key-said')
  @Text()
  keySaid(): string {
    return 'key-said\n'
  }

  @RateLimit({ policy: 'never', key: jsonUser })
  @Post('json')
  @Text()
  json(): string {
    return 'json\n'
  }

  @RateLimit({ policy: 'never', key: (req, res) => [address(req, res), apiKey(req)] })
  @Get('parts')
  @Text()
  parts(): string {
    return 'parts\n'
  }

  @RateLimit({ policy: 'never', key: (req) => req.query.user })
  @Get('param')
  @Text()
  param(): string {
    return 'param\n'
  }

  @RateLimit({ policy: 'never', key: (req) => (req.get('X-Exempt') === 'yes' ? NOT_LIMITED : address(req)) })
  @Get('exempt')
  @Text()
  exempt(): string {
    return 'exempt\n'
  }

  @RateLimit({ policy: 'pair', key: user((req) => req.get('X-User')) })
  @Get('user')
  @Text()
  user(): string {
    return 'user\n'
  }

  @RateLimit({ policy: 'never', key: user((req) => req.session.user) })
  @Get('user-broken')
  @Text()
  userBroken(): string {
    return 'user-broken\n'
  }

  @RateLimit({ policy: 'pair', key: found })
  @Get('late-hook')
  @Text()
  lateHook(): string {
    return 'late-hook\n'
  }

  @UseGuards(NeedsUser)
  @RateLimit({ policy: 'pair', key: found })
  @Get('late-guard')
  @Text()
  lateGuard(): string {
    return 'late-guard\n'
  }

  @Get('forward')
  forward(@Req() req: Request, @Res() res: Response, @Next() next: NextFunction): void {
    forward(req, res, next, '/attack/forwarded')
  }

  @RateLimit('pair')
  @Get('forwarded')
  @Text()
  forwarded(): string {
    return 'forwarded\n'
  }

  @RateLimit('web')
  @Get('redirect')
  redirect(@Req() req: Request, @Res() res: Response, @Next() next: NextFunction): void {
    forward(req, res, next, '/attack/redirected')
  }

  @RateLimit('web')
  @Get('redirected')
  @Text()
  redirected(): string {
    return 'redirected\n'
  }

  @RateLimit({ policy: 'web', chargeWhen: () => 5 })
  @Get('number')
  @Text()
  number(): string {
    return 'number\n'
  }

  @RateLimit(inline)
  @Get('names/method')
  @Text()
  getMethod(): string {
    return 'method\n'
  }

  @RateLimit(inline)
  @Post('names/method')
  @HttpCode(200)
  @Text()
  postMethod(): string {
    return 'method\n'
  }

  // a handler of Nest has one method, or every one
  @RateLimit(inline)
  @All('names/both')
  @Text()
  both(): string {
    return 'both\n'
  }

  @RateLimit(inline)
  @Get('names/item/:id')
  @Text()
  item(@Param('id') id: string): string {
    return `${id}\n`
  }

  @RateLimit({ ...inline, endpoint: 'shared' })
  @Get('names/shared-a')
  @Text()
  sharedA(): string {
    return 'shared-a\n'
  }

  @RateLimit({ ...inline, endpoint: 'shared' })
  @Get('names/shared-b')
  @Text()
  sharedB(): string {
    return 'shared-b\n'
  }

  @RateLimit({ limit: (req) => Number(req.query.limit), window: '1m', key: () => 'moves' })
  @Get('moves')
  @Text()
  moves(): string {
    return 'moves\n'
  }
}

/** The classes are made by one function; those of `lambda` have no name of their own. */
function made(path: string, body: string): new () => object {
  const Made = class {
    get(): string {
      return `${body}\n`
    }
  }
  const get = Object.getOwnPropertyDescriptor(Made.prototype, 'get')!
  for (const decorate of [Text(), Get(), RateLimit(inline)]) decorate(Made.prototype, 'get', get)
  for (const decorate of [UseGuards(RateLimitGuard), Controller(path)]) decorate(Made as never)
  return Made
}

@Controller('attack/raw')
@RateLimit('never')
@UseGuards(RateLimitGuard)
class Raw {
  @Get('x')
  @Text()
  x(): string {
    return 'raw\n'
  }
}

@Controller('attack/outer')
@RateLimit('web')
@UseGuards(RateLimitGuard)
class Outer {
  @RateLimit('web')
  @Get('twice')
  @Text()
  twice(): string {
    return 'twice\n'
  }

  @RateLimit({ policy: 'web', cost: 5 })
  @Get('cost')
  @Text()
  cost(): string {
    return 'cost\n'
  }

  @RateLimit('pair')
  @Get('inner')
  @Text()
  inner(): string {
    return 'inner\n'
  }

  @RateLimit({ policy: 'never', key: apiKey })
  @Get('key')
  @Text()
  key(): string {
    return 'key\n'
  }
}

@Controller('attack/strict')
@UseGuards(RateLimitGuard)
class Strict {
  @RateLimit('never')
  @Get('inner')
  @Text()
  inner(): string {
    return 'inner\n'
  }
}

@Controller()
@UseGuards(RateLimitGuard)
class Mounted {
  @RateLimit(inline)
  @Get('x')
  @Text()
  x(): string {
    return 'x\n'
  }
}

@Module({ controllers: [Mounted] })
class MountedA {}

@Module({ controllers: [Mounted] })
class MountedB {}

@Controller('attack/mistake')
@UseGuards(RateLimitGuard)
class EqualNames {
  @RateLimit({ ...inline, endpoint: 'GET /attack/mistake/2' })
  @Get('1')
  @Text()
  one(): string {
    return '1\n'
  }

  @RateLimit(inline)
  @Get('2')
  @Text()
  two(): string {
    return '2\n'
  }
}

@Controller('attack/mistake')
class WithoutGuard {
  @RateLimit('never')
  @Get('1')
  @Text()
  one(): string {
    return '1\n'
  }
}

const mistakes: Record<string, new () => object> = { 'equal-names': EqualNames, misplaced: WithoutGuard }
const mistake = mistakes[process.env.MISTAKE ?? '']
if (process.env.MISTAKE === 'no-user-layer') user(undefined as never)

@Module({
  imports: [
    MountedA,
    MountedB,
    RouterModule.register([
      { path: 'attack/names/mounted-a', module: MountedA },
      { path: 'attack/names/mounted-b', module: MountedB },
    ]),
  ],
  controllers: [
    Attacks,
    Raw,
    Outer,
    Strict,
    made('attack/names/factory/a', 'a'),
    made('attack/names/factory/b', 'b'),
    made('attack/names/lambda/a', 'a'),
    made('attack/names/lambda/b', 'b'),
    ...(mistake ? [mistake] : []),
  ],
})
export class AttacksModule {}
