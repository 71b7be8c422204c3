<?php

declare(strict_types=1);

namespace Ratelimitd;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/**
 * PSR-15 middleware: answers 429 where the daemon denies, and adds the RateLimit fields to every other answer. The handler
 * finds the decision in the attribute `ratelimit` of the request.
 *
 * The limits of one middleware are charged together or not at all. A mistake in the configuration (an unknown policy, an
 * mistake in a key) throws; without a key the answer is 503.
 */
final class Middleware implements MiddlewareInterface
{
    public const ATTRIBUTE = 'ratelimit';

    private const FACTORIES = [
        'Nyholm\Psr7\Factory\Psr17Factory', 'GuzzleHttp\Psr7\HttpFactory', 'Slim\Psr7\Factory\ResponseFactory',
        'Laminas\Diactoros\ResponseFactory', 'HttpSoft\Message\ResponseFactory',
    ];

    private readonly Limiter $limiter;
    /** @var list<Limit> */
    private readonly array $limits;
    private readonly ResponseFactoryInterface $responses;

    /**
     * @param string|Limit|list<string|Limit> $limits a policy, a limit such as "10/5s", or several of them
     * @param ?string $endpoint the name of the endpoint, such as "GET /search", for limits of its own: each endpoint counts
     *     by itself. It is the name of the handler or the route's pattern, never what the client wrote
     * @param ?ResponseFactoryInterface $responses default: that of the PSR-7 library that is there
     */
    public function __construct(
        Limiter|Client $limiter,
        string|Limit|array $limits,
        private readonly ?string $endpoint = null,
        ?ResponseFactoryInterface $responses = null,
    ) {
        $this->limiter = $limiter instanceof Client ? new Limiter($limiter) : $limiter;
        $this->limits = array_map(Limit::of(...), array_values(is_array($limits) ? $limits : [$limits]));
        if ($this->limits === []) {
            throw new \InvalidArgumentException('a middleware without a limit limits nothing');
        }
        foreach ($this->limits as $limit) {
            if ($limit->isInline()) {
                Limiter::keyFor([], '', $limit->endpoint ?? $endpoint, '');
            }
        }
        $this->responses = $responses ?? self::factory();
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $visit = $request->getAttribute(Visit::ATTRIBUTE) ?? new Visit();
        $admission = $this->limiter->admit($this->limits, $request, $this->endpoint, $visit);
        if ($admission->isRefused()) {
            return self::withFields($this->refusal($admission, $request), $visit);
        }

        try {
            $request = $request->withAttribute(Visit::ATTRIBUTE, $visit)->withAttribute(self::ATTRIBUTE, $visit->decision());
            $response = $handler->handle($request);
            $admission->settle($request, $response);
        } catch (\Throwable $failure) {
            $admission->end();
            throw $failure;
        }
        // The body of an answer is sent when this middleware is done; only a server that lives on has no end to wait for.
        if ($admission->holdsSlots() && PHP_SAPI !== 'cli') {
            register_shutdown_function($admission->end(...));
        } else {
            $admission->end();
        }
        return self::withFields($response, $visit);
    }

    private function refusal(Admission $admission, ServerRequestInterface $request): ResponseInterface
    {
        $own = $admission->ownAnswer($request);
        if ($own !== null) {
            return $own;
        }
        [$status, $type, $body] = $admission->answer($request);
        $response = $this->responses->createResponse($status)->withHeader('Content-Type', $type);
        $response->getBody()->write($body);
        return $response;
    }

    private static function withFields(ResponseInterface $response, Visit $visit): ResponseInterface
    {
        foreach ($visit->fields() as [$name, $value]) {
            $response = $response->withHeader($name, $visit->merged($name, $response->getHeaderLine($name), $value));
        }
        return $response;
    }

    private static function factory(): ResponseFactoryInterface
    {
        foreach (self::FACTORIES as $class) {
            if (class_exists($class)) {
                return new $class();
            }
        }
        throw new \InvalidArgumentException('no PSR-17 factory found: pass one as `responses`');
    }
}
