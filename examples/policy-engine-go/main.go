// Answers the questions of a gate: a policy engine over GateService.StreamVerdicts. The rules are in rules.go.
//
// Several instances share the questions of a gate. On SIGTERM an instance takes no more questions, answers those that
// it has, and ends. `buf generate` writes the packages below generated.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	decisionv1beta1 "policy-engine/generated/ownergraph/decision/v1beta1"
)

const (
	maxInflight  = 1000 // Maximum number of questions without an answer.
	maxVerdicts  = 1000 // Maximum number of answers in one message.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	drainWithin  = 30 * time.Second
)

type (
	toEngine   = decisionv1beta1.StreamVerdictsResponse
	fromEngine = decisionv1beta1.StreamVerdictsRequest
	question   = decisionv1beta1.StreamVerdictsResponse_Request
	verdict    = decisionv1beta1.StreamVerdictsRequest_Verdict
	stream     = grpc.BidiStreamingClient[fromEngine, toEngine]
)

type options struct {
	servers                               []string
	gate, instance                        string
	workers                               int
	rules                                 rules
	tlsCA, tlsCert, tlsKey, tlsServerName string
	tokenFile                             string
	tls                                   bool
}

// next says where and when to connect after the end of a stream.
type next struct {
	leader string        // The address of the leader, if it is known.
	wait   time.Duration // What the service asked for.
	served bool          // The service took the stream.
}

func main() {
	o := parse()
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	leader, backoff := "", firstBackoff
	for i := 0; stopped.Err() == nil; i++ {
		server := cmp.Or(leader, o.servers[i%len(o.servers)])
		next, err := serve(stopped, server, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", server, status.Convert(err).Message())
			next.leader, next.wait = advice(err)
		}
		leader = next.leader
		if next.served {
			backoff = firstBackoff
		}
		select {
		case <-time.After(max(next.wait, backoff/2+rand.N(backoff))):
		case <-stopped.Done():
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func parse() options {
	var o options
	flag.Func("server", "graph services, tried in turn: `host:port,host:port`", func(servers string) error {
		o.servers = append(o.servers, strings.Split(servers, ",")...)
		return nil
	})
	flag.StringVar(&o.gate, "gate", "", "the `name` of the gate")
	host, _ := os.Hostname()
	flag.StringVar(&o.instance, "instance", host, "the `name` of this instance, for people")
	flag.IntVar(&o.workers, "workers", 4, "maximum `number` of questions that are decided at once")
	flag.Func("deny-kind", "deny the deletion of these `resources`: persistentvolumeclaims,deployments.apps", func(kinds string) error {
		o.rules.denied = append(o.rules.denied, strings.Split(kinds, ",")...)
		return nil
	})
	flag.Uint64Var(&o.rules.maxCascade, "max-cascade", 0, "hold cascades over more than this `number` of objects outside --window; 0 is no limit")
	flag.Func("window", "the time of each day for large cascades, in UTC: `HH:MM-HH:MM`; never without it", func(text string) (err error) {
		o.rules.window, err = readWindow(text)
		return err
	})
	flag.StringVar(&o.tlsCA, "tls-ca", "", "`file` with the authorities of the server's certificate, as PEM; requests TLS, as https:// does")
	flag.StringVar(&o.tlsCert, "tls-cert", "", "`file` with the client certificate, as PEM")
	flag.StringVar(&o.tlsKey, "tls-key", "", "`file` with its key")
	flag.StringVar(&o.tlsServerName, "tls-server-name", "", "`name` that the server's certificate must have, instead of the host in its address")
	flag.StringVar(&o.tokenFile, "token-file", "", "`file` with a bearer token, which is sent over TLS only")
	flag.Parse()
	o.tls = o.tlsCA != "" || slices.ContainsFunc(o.servers, func(server string) bool { return strings.HasPrefix(server, "https://") })
	switch {
	case len(o.servers) == 0:
		refuse("--server is missing")
	case o.gate == "":
		refuse("--gate is missing")
	case o.workers < 1 || o.workers > maxInflight:
		refuse(fmt.Sprintf("--workers is not from 1 to %d", maxInflight))
	case o.rules.window != window{} && o.rules.maxCascade == 0:
		refuse("--window needs --max-cascade")
	case flag.NArg() > 0:
		refuse("there are no arguments besides flags: " + flag.Arg(0))
	case (o.tlsCert == "") != (o.tlsKey == ""):
		refuse("--tls-cert and --tls-key need each other")
	case o.tokenFile != "" && !o.tls:
		refuse("--token-file needs TLS: give --tls-ca, or an https:// address")
	}
	return o
}

func refuse(why string) {
	fmt.Fprintln(flag.CommandLine.Output(), why)
	flag.Usage()
	os.Exit(2)
}

// serve answers the questions of one stream to its end.
func serve(stopped context.Context, server string, o options) (next, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return next{}, err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	transport, err := security(o)
	if err != nil {
		return next{}, err
	}
	// The address of the leader has no scheme. The scheme of the servers on the command line is used.
	host := strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	// Without keepalive, a service that is gone without a word leaves an idle stream open.
	alive := grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second})
	connection, err := grpc.NewClient(host, grpc.WithTransportCredentials(transport), alive)
	if err != nil {
		return next{}, err
	}
	defer connection.Close()
	stream, err := decisionv1beta1.NewGateServiceClient(connection).StreamVerdicts(ctx)
	if err != nil {
		return next{}, err
	}
	hello := &fromEngine{Message: &decisionv1beta1.StreamVerdictsRequest_Hello_{Hello: &decisionv1beta1.StreamVerdictsRequest_Hello{
		Gate: o.gate, Instance: o.instance, MinProtocol: 1, MaxProtocol: 1,
		MaxInflight: maxInflight, PolicyRevision: o.rules.revision(),
	}}}
	// If Send fails, Recv has the reason.
	if err := stream.Send(hello); err != nil && !errors.Is(err, io.EOF) {
		return next{}, err
	}

	questions, verdicts := make(chan *question, maxInflight), make(chan *verdict, maxInflight)
	var workers, sender sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for question := range questions {
				verdict := o.rules.decide(question, time.Now())
				report(question, verdict)
				verdicts <- verdict
			}
		})
	}
	sender.Go(func() { send(stopped, cancel, stream, verdicts) })
	next, err := receive(stream, questions)
	close(questions)
	workers.Wait()
	close(verdicts)
	sender.Wait()
	if stopped.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return next, fmt.Errorf("the stream did not end within %s of drain", drainWithin)
	}
	return next, err
}

// receive reads to the end of the stream. Questions that have ended are answered like the others: their verdicts have
// no effect.
func receive(stream stream, questions chan<- *question) (next, error) {
	var after next
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return after, nil
		} else if err != nil {
			return after, err
		}
		switch message := response.Message.(type) {
		case *decisionv1beta1.StreamVerdictsResponse_Welcome_:
			after.served = true
			fmt.Printf("welcome: timeout %s, %s\n", message.Welcome.GetTimeout().AsDuration(), message.Welcome.FailurePolicy)
		case *decisionv1beta1.StreamVerdictsResponse_Requests_:
			for _, question := range message.Requests.Requests {
				questions <- question
			}
		case *decisionv1beta1.StreamVerdictsResponse_GoAway_:
			after.leader, after.wait = message.GoAway.LeaderEndpoint, message.GoAway.GetReconnectAfter().AsDuration()
		}
	}
}

// send writes verdicts as they come, in as few messages as possible. After a signal it writes drain, and still writes
// the verdicts that follow.
func send(stopped context.Context, cancel context.CancelFunc, stream stream, verdicts <-chan *verdict) {
	defer stream.CloseSend()
	stop := stopped.Done()
	for {
		select {
		case <-stop:
			stop = nil
			drain := &decisionv1beta1.StreamVerdictsRequest_Drain_{Drain: &decisionv1beta1.StreamVerdictsRequest_Drain{}}
			// If Send fails, the stream has ended, and Recv has the reason. The same holds below.
			stream.Send(&fromEngine{Message: drain})
			defer time.AfterFunc(drainWithin, cancel).Stop()
		case one, more := <-verdicts:
			if !more {
				return
			}
			batch := []*verdict{one}
			for len(batch) < maxVerdicts && len(verdicts) > 0 {
				batch = append(batch, <-verdicts)
			}
			answers := &decisionv1beta1.StreamVerdictsRequest_Verdicts{Verdicts: batch}
			stream.Send(&fromEngine{Message: &decisionv1beta1.StreamVerdictsRequest_Verdicts_{Verdicts: answers}})
		}
	}
}

// report prints one line for each question that is not allowed.
func report(question *question, verdict *verdict) {
	if verdict.Verdict != decisionv1beta1.GateVerdict_GATE_VERDICT_ALLOW {
		target := question.GetTarget()
		fmt.Printf("%s %s %s/%s: %s\n", verdict.Verdict, target.GetKind(), target.GetNamespace(), target.GetName(), verdict.Message)
	}
}

// security reads the files of TLS again for each connection, because they rotate.
func security(o options) (credentials.TransportCredentials, error) {
	if !o.tls {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{ServerName: o.tlsServerName}
	if o.tlsCA != "" {
		pem, err := os.ReadFile(o.tlsCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: the file has no certificate", o.tlsCA)
		}
	}
	if o.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

// advice returns the leader, if the error names it, and the time to wait.
func advice(err error) (leader string, wait time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.Domain == "ownergraph.dev" {
				leader = detail.Metadata["leaderEndpoint"]
			}
		case *errdetails.RetryInfo:
			wait = detail.GetRetryDelay().AsDuration()
		}
	}
	return leader, wait
}
