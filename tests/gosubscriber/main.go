// Follows every decision from the oldest on, with nothing but the descriptors of the API and grpc-go's default limits.
//
//	gosubscriber SERVER DESCRIPTORS
//
// One line per event on stdout: LOG/POSITION PHASE KIND TARGET. It ends with the stream, and says why on stderr.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const service = "ownergraph.decision.v1beta1"

func main() {
	if err := follow(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow(server, descriptors string) error {
	files, err := read(descriptors)
	if err != nil {
		return err
	}
	request, err := message(files, "WatchDecisionsRequest")
	if err != nil {
		return err
	}
	request.Set(field(request, "oldest"), protoreflect.ValueOfBool(true))
	response, err := message(files, "WatchDecisionsResponse")
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := connection.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/"+service+".DecisionService/WatchDecisions")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for {
		proto.Reset(response)
		if err := stream.RecvMsg(response); err != nil {
			return err
		}
		batch := response.Get(field(response, "batch")).Message()
		events := batch.Get(field(batch, "events")).List()
		for i := range events.Len() {
			tell(out, events.Get(i).Message())
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func tell(out *bufio.Writer, event protoreflect.Message) {
	at, target := event.Get(field(event, "position")).Message(), event.Get(field(event, "target")).Message()
	fmt.Fprintf(out, "%s/%d %s %s %s %s/%s\n",
		at.Get(field(at, "log_id")).String(), at.Get(field(at, "sequence")).Uint(),
		name(event, "phase"), name(event, "kind"),
		target.Get(field(target, "kind")).String(), target.Get(field(target, "namespace")).String(), target.Get(field(target, "name")).String())
}

func name(of protoreflect.Message, enum protoreflect.Name) protoreflect.Name {
	value := field(of, enum).Enum().Values().ByNumber(of.Get(field(of, enum)).Enum())
	if value == nil {
		return "UNKNOWN"
	}
	return value.Name()
}

func field(of protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return of.Descriptor().Fields().ByName(name)
}

func read(path string) (*protoregistry.Files, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(bytes, &set); err != nil {
		return nil, err
	}
	return protodesc.NewFiles(&set)
}

func message(files *protoregistry.Files, name protoreflect.FullName) (*dynamicpb.Message, error) {
	descriptor, err := files.FindDescriptorByName(service + "." + name)
	if err != nil {
		return nil, err
	}
	return dynamicpb.NewMessage(descriptor.(protoreflect.MessageDescriptor)), nil
}
