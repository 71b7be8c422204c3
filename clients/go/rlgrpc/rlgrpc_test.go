package rlgrpc_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgrpc"
)

const configuration = `
policies:
  api: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  one: {algorithm: concurrency, limit: 1}
inline: {allow: true}
`

// A service whose calls end as the test sets it.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	end chan error
}

func (s *service) Check(context.Context,
	*grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{}, <-s.end
}

func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
		return err
	}
	return <-s.end
}

func start(t *testing.T, options ...grpc.ServerOption) (grpc_health_v1.HealthClient, chan error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 100)
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, &service{end: end})
	go server.Serve(listener)
	t.Cleanup(server.Stop)

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), end
}

var background = context.Background()

func TestADeniedCallIsResourceExhaustedWithRetryInfo(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	health, end := start(t, grpc.ChainUnaryInterceptor(rlgrpc.Unary(client, rlgrpc.LimitHealth(), rlgrpc.Policy("api"), rlgrpc.ByPeer)))

	for range 2 {
		end <- nil
		if _, err := health.Check(background, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := health.Check(background, nil)
	got := status.Convert(err)
	if got.Code() != codes.ResourceExhausted || len(got.Details()) != 2 {
		t.Fatal(err)
	}
	if violated := got.Details()[0].(*errdetails.QuotaFailure).Violations[0].Subject; violated != "api" {
		t.Error(violated)
	}
	if retry := got.Details()[1].(*errdetails.RetryInfo).RetryDelay.AsDuration(); retry != time.Minute {
		t.Error(retry)
	}
	if d, err := client.Peek(background, "api", "127.0.0.1"); err != nil || d.Remaining != 0 {
		t.Error(d, err)
	}
}

func TestAStreamHoldsItsSlotUntilItsEnd(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	health, end := start(t, grpc.ChainStreamInterceptor(rlgrpc.Stream(client, rlgrpc.LimitHealth(), rlgrpc.Policy("one"), rlgrpc.Slot())))
	watch := func() (grpc_health_v1.Health_WatchClient, error) {
		stream, err := health.Watch(background, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}

	first, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch()
	if got := status.Convert(err); got.Code() != codes.ResourceExhausted || len(got.Details()) != 1 {
		t.Fatal(err) // a slot comes back when somebody is done: no RetryInfo
	}
	end <- nil
	first.Recv()
	if _, err := watch(); err != nil {
		t.Fatal(err)
	}
	end <- nil
}

func TestChargeWhenSeesTheError(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	failed := func(_ rlgrpc.Call, err error) bool { return status.Code(err) == codes.Unauthenticated }
	limit := rlgrpc.Unary(client, rlgrpc.LimitHealth(), rlgrpc.Policy("api"), rlgrpc.ByMetadata("user"), rlgrpc.ChargeWhen(failed))
	health, end := start(t, grpc.ChainUnaryInterceptor(limit))
	alice := metadata.AppendToOutgoingContext(background, "user", "alice")

	wrong := status.Error(codes.Unauthenticated, "")
	for _, err := range []error{nil, wrong, nil, wrong} {
		end <- err
		if _, got := health.Check(alice, nil); status.Code(got) != status.Code(err) {
			t.Fatal(got)
		}
	}
	if _, err := health.Check(alice, nil); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{background, metadata.AppendToOutgoingContext(background, "user", "")} {
		if _, err := health.Check(ctx, nil); status.Code(err) != codes.Unavailable {
			t.Fatal("a call without a key is refused: ", err)
		}
	}
}

func TestHealthChecksAreNotLimited(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Deny("api", -1)
	health, end := start(t, grpc.ChainUnaryInterceptor(rlgrpc.Unary(fake.Client(), rlgrpc.Policy("api"))),
		grpc.ChainStreamInterceptor(rlgrpc.Stream(fake.Client(), rlgrpc.Policy("api"))))
	for range 3 {
		end <- nil
		if _, err := health.Check(background, nil); err != nil {
			t.Fatal(err)
		}
	}
	end <- nil
	stream, err := health.Watch(background, &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil || len(fake.Calls()) != 0 {
		t.Fatal(err, fake.Calls())
	}
}

func TestTheHandlerHasTheDecisionAndTheLimitItsName(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	var seen []string
	look := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		decision, decided := rlgrpc.DecisionOf(ctx)
		seen = append(seen, fmt.Sprint(decision.Of, " ", decision.Remaining, " ", decided))
		return handler(ctx, request)
	}
	limit := rlgrpc.Unary(client, rlgrpc.LimitHealth(), rlgrpc.Every(2, time.Minute), rlgrpc.Name("calls"))
	health, end := start(t, grpc.ChainUnaryInterceptor(limit, look))
	end <- nil
	if _, err := health.Check(background, nil); err != nil || !slices.Equal(seen, []string{"calls 1 true"}) {
		t.Fatal(err, seen)
	}
}

func TestAMistakeIsLoggedOnceInTenSeconds(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Fail(&ratelimit.RefusedError{Code: "UNKNOWN_POLICY", Message: "there is no policy apo"})
	var log strings.Builder
	client := fake.Client(ratelimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	health, _ := start(t, grpc.ChainUnaryInterceptor(rlgrpc.Unary(client, rlgrpc.LimitHealth(), rlgrpc.Policy("apo"))))
	for range 3 {
		if _, err := health.Check(background, nil); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Error(log.String())
	}
}

func TestOptionsThatContradictEachOtherPanic(t *testing.T) {
	failed := func(rlgrpc.Call, error) bool { return true }
	for _, other := range []rlgrpc.Option{rlgrpc.Policy("ten a second"), rlgrpc.Slot()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a limit that cannot be meant so")
				}
			}()
			rlgrpc.Unary(ratelimittest.NewFake().Client(), rlgrpc.LimitHealth(), rlgrpc.Policy("api"), other, rlgrpc.ChargeWhen(failed))
		}()
	}
}

func TestOnErrorDecidesWhereTheDaemonDoesNotAnswer(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Unavailable(ratelimit.KindUnreachable)
	skip := func(call rlgrpc.Call) bool { return call.Method != "/grpc.health.v1.Health/Check" }

	health, end := start(t, grpc.ChainUnaryInterceptor(rlgrpc.Unary(fake.Client(ratelimit.WithService("shop")), rlgrpc.LimitHealth(),
		rlgrpc.Every(1, time.Second))))
	end <- nil
	if _, err := health.Check(background, nil); err != nil {
		t.Fatal(err)
	}
	closed := rlgrpc.Unary(fake.Client(), rlgrpc.LimitHealth(), rlgrpc.Policy("api"), rlgrpc.Skip(skip), rlgrpc.OnError(ratelimit.Deny))
	health, _ = start(t, grpc.ChainUnaryInterceptor(closed))
	if _, err := health.Check(background, nil); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if calls := fake.Calls(); calls[0].Key != "shop|/grpc.health.v1.Health/Check|127.0.0.1" {
		t.Fatal(calls)
	}
}
