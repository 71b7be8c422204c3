<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What became of a request at one place. @internal for the middlewares */
final class Admission
{
    /** @var list<Asked> in the order of the limits */
    public array $asked = [];
    /** the one that denied, with the decision about all that were asked with it */
    public ?Asked $denied = null;
    public ?Decision $denial = null;
    /** no decision was made, and a limit denies then */
    public bool $isUnavailable = false;
    /** a limit got no key, or no policy, and does not let such requests through */
    public bool $lacksKey = false;

    public function __construct(public readonly Limiter $limiter)
    {
    }

    public function isRefused(): bool
    {
        return $this->denied !== null || $this->isUnavailable || $this->lacksKey;
    }

    /** @return array{int, string, string} status, Content-Type and body of the answer to a refused request */
    public function answer(object $request): array
    {
        $accept = Requests::lines($request, 'Accept');
        return Http::refusal($this->denial, $accept === [] ? null : implode(', ', $accept));
    }

    /** The application's own answer to a denied request, if it has one. */
    public function ownAnswer(object $request): ?object
    {
        $respond = $this->denied === null ? null : $this->denied->limit->respond ?? $this->limiter->respond;
        return $respond === null ? null : $respond($request, $this->denial);
    }

    public function holdsSlots(): bool
    {
        return array_filter($this->asked, static fn (Asked $asked): bool => $asked->slot !== null) !== [];
    }

    /** The handler has answered: charge what depends on its answer, or give it back. */
    public function settle(object $request, object $response): void
    {
        try {
            foreach ($this->asked as $asked) {
                if ($asked->reservation !== null || $asked->isCharged) {
                    $this->settleOne($asked, ($asked->limit->chargeWhen)($response, $request));
                }
            }
        } catch (\Throwable $failure) {
            $this->end();
            throw $failure;
        }
    }

    private function settleOne(Asked $asked, mixed $given): void
    {
        $units = $asked->isCertain ? $asked->cost : Limit::units($given, $asked->cost);
        if ($units === 0) {
            $this->giveBack($asked);
            return;
        }
        [$reservation, $asked->reservation, $asked->isCharged] = [$asked->reservation, null, false];
        $more = $units - $asked->cost;
        $this->limiter->quietly(function () use ($reservation, $asked, $units, $more): void {
            $client = $this->limiter->client;
            if ($reservation !== null) {
                $charged = $reservation->settle($units)->charged;
            } elseif ($more < 0) {
                $client->refund($asked->policy, $asked->key, -$more);
            } elseif ($more > 0) {
                $charged = $client->check($asked->policy, $asked->key, atMost: $more)->granted;
            }
            if ($more > 0 && $charged < $more) {
                $this->limiter->sayUncharged($units);
            }
        });
    }

    /** The answer has ended, or there is none: give back what is held. */
    public function end(): void
    {
        foreach ($this->asked as $asked) {
            $asked->slot?->release();
            $asked->slot = null;
            $this->giveBack($asked);
        }
    }

    private function giveBack(Asked $asked): void
    {
        [$reservation, $isCharged] = [$asked->reservation, $asked->isCharged];
        [$asked->reservation, $asked->isCharged] = [null, false];
        if ($reservation !== null) {
            $this->limiter->quietly(static fn () => $reservation->cancel());
        } elseif ($isCharged) {
            $this->limiter->quietly(fn () => $this->limiter->client->refund($asked->policy, $asked->key, $asked->cost));
        }
    }
}
