<?php

declare(strict_types=1);

namespace Ratelimitd;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** What the middlewares of Symfony and Laravel share. @internal */
final class HttpFoundation
{
    public const ATTRIBUTE = 'ratelimit';

    /** A request that is handed on inside the server, with its attributes, is the same visit. */
    public static function visit(Request $request): Visit
    {
        if (!$request->attributes->has(Visit::ATTRIBUTE)) {
            $request->attributes->set(Visit::ATTRIBUTE, new Visit());
        }
        return $request->attributes->get(Visit::ATTRIBUTE);
    }

    /** The handler finds the decision in the attributes of the request; null: no decision was made. */
    public static function tell(Request $request): void
    {
        $request->attributes->set(self::ATTRIBUTE, self::visit($request)->decision());
    }

    public static function refusal(Request $request, Admission $admission): Response
    {
        $own = $admission->ownAnswer($request);
        if ($own === null) {
            [$status, $type, $body] = $admission->answer($request);
            $own = new Response($body, $status, ['Content-Type' => $type]);
        }
        return self::withFields($own, $request);
    }

    public static function withFields(Response $response, Request $request): Response
    {
        $visit = self::visit($request);
        foreach ($visit->fields() as [$name, $value]) {
            $response->headers->set($name, $visit->merged($name, (string) $response->headers->get($name), $value));
        }
        return $response;
    }
}
