// Follows every decision of the collector. After a restart it continues where it stopped. It is the skeleton of a
// policy engine.
//
// Prints one line per event to stdout. The position is stored after all events up to it are handled. So a subscriber
// that is killed sees some events again, and misses none. `buf generate` writes the packages below generated.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	decisionv1beta1 "policy-subscriber/generated/ownergraph/decision/v1beta1"
	workv1beta1 "policy-subscriber/generated/ownergraph/work/v1beta1"
)

type options struct {
	servers                               []string
	position, protect                     string
	tlsCA, tlsCert, tlsKey, tlsServerName string
	tokenFile                             string
	tls                                   bool
}

// position is the content of the file of --position.
type position struct {
	LogID    string `json:"logId"`
	Sequence uint64 `json:"sequence"`
}

func main() {
	o := parse()
	hint := ""
	for i := 0; ; i++ {
		server := cmp.Or(hint, o.servers[i%len(o.servers)])
		hint = ""
		if err := follow(server, o); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", server, status.Convert(err).Message())
			var wait time.Duration
			hint, wait = advice(err)
			time.Sleep(wait)
		}
	}
}

func parse() options {
	var o options
	flag.Func("server", "graph services, tried in turn: `host:port,host:port`", func(servers string) error {
		o.servers = append(o.servers, strings.Split(servers, ",")...)
		return nil
	})
	flag.StringVar(&o.position, "position", "position.json", "`file` with the position of this subscriber")
	flag.StringVar(&o.protect, "protect", "kube-system", "print a warning when an object in this `namespace` is deleted")
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

// follow follows one stream to its end.
func follow(server string, o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	transport, err := security(o)
	if err != nil {
		return err
	}
	// The address of the leader has no scheme. The scheme of the servers on the command line is used.
	host := strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	connection, err := grpc.NewClient(host, grpc.WithTransportCredentials(transport))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &decisionv1beta1.WatchDecisionsRequest{AcceptGaps: true}
	if err := startAfter(o.position, request); err != nil {
		return err
	}
	stream, err := decisionv1beta1.NewDecisionServiceClient(connection).WatchDecisions(ctx, request)
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch event := response.Event.(type) {
		case *decisionv1beta1.WatchDecisionsResponse_Batch_:
			for _, event := range event.Batch.Events {
				handle(event, o.protect)
			}
		case *decisionv1beta1.WatchDecisionsResponse_Gap_:
			next := event.Gap.GetNext()
			fmt.Printf("gap %s before %s/%d\n", event.Gap.Reason, next.GetLogId(), next.GetSequence())
		case *decisionv1beta1.WatchDecisionsResponse_GoingAway_:
			time.Sleep(event.GoingAway.GetReconnectAfter().AsDuration())
		}
		// A message without an event may move the position, too.
		if response.Position != nil {
			if err := store(o.position, response.Position); err != nil {
				return err
			}
		}
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

// handle is the place for the policy.
func handle(event *decisionv1beta1.DecisionEvent, protected string) {
	at, target := event.GetPosition(), event.GetTarget()
	name := fmt.Sprintf("%s %s/%s", target.GetKind(), target.GetNamespace(), target.GetName())
	fmt.Printf("%s/%d %s %s %s\n", at.GetLogId(), at.GetSequence(), event.Phase, event.Kind, name)
	if event.Kind == workv1beta1.ItemKind_ITEM_KIND_DELETE && target.GetNamespace() == protected {
		fmt.Fprintf(os.Stderr, "policy: %s is to be deleted in protected namespace %s\n", name, protected)
	}
}

// advice returns the leader, if the error names it, and the time to wait.
func advice(err error) (leader string, wait time.Duration) {
	wait = time.Second
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

func startAfter(path string, request *decisionv1beta1.WatchDecisionsRequest) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		request.Start = &decisionv1beta1.WatchDecisionsRequest_Oldest{Oldest: true}
		return nil
	} else if err != nil {
		return err
	}
	var at position
	if err := json.Unmarshal(text, &at); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	request.Start = &decisionv1beta1.WatchDecisionsRequest_After{
		After: &decisionv1beta1.Position{LogId: at.LogID, Sequence: at.Sequence},
	}
	return nil
}

// store writes to another name first. A process that is killed while it writes then leaves the old position, and not
// half of a new one.
func store(path string, at *decisionv1beta1.Position) error {
	text, err := json.Marshal(position{LogID: at.LogId, Sequence: at.Sequence})
	if err != nil {
		return err
	}
	next := strings.TrimSuffix(path, filepath.Ext(path)) + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
