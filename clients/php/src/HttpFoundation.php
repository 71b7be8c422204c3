<?php

declare(strict_types=1);

namespace Ratelimitd;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** What the middlewares of Symfony and Laravel share. @internal */
final class HttpFoundation
{
    public const ATTRIBUTE = 'ratelimit';

    /** The handler finds the decision in the attributes of the request; null: no decision was made. */
    public static function tell(Request $request, Admission $admission): void
    {
        $request->attributes->set(self::ATTRIBUTE, $admission->decision($request->attributes->get(self::ATTRIBUTE)));
    }

    public static function refusal(Request $request, Admission $admission): Response
    {
        $own = $admission->ownAnswer($request);
        if ($own === null) {
            [$status, $type, $body] = $admission->answer($request);
            $own = new Response($body, $status, ['Content-Type' => $type]);
        }
        return self::withFields($own, $admission);
    }

    public static function withFields(Response $response, Admission $admission): Response
    {
        foreach ($admission->fields() as [$name, $value]) {
            $response->headers->set($name, Http::merged($name, (string) $response->headers->get($name), $value));
        }
        return $response;
    }
}
