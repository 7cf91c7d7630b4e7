// Text from standard input, line by line as it comes, speech into a file of 16-bit samples at 24 kHz.
//
//	sh generate.sh      # the stubs, into pb/; needs protoc, protoc-gen-go and protoc-gen-go-grpc
//	echo "Words may come one by one." | go run . speech.pcm 127.0.0.1:50051
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"sonorant-example/pb"
)

func main() {
	path, server := os.Args[1], os.Args[2]
	connection, err := grpc.Dial(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	ctx := context.Background()
	if key := os.Getenv("SONORANT_CLIENT_API_KEY"); key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
	}
	call, err := pb.NewTextToSpeechServiceClient(connection).Speak(ctx)
	check(err)

	// The config first, then text as it comes. A pb.SpeakRequest_Cancel would be a barge-in.
	config := &pb.SpeakConfig{Timestamps: pb.TimestampMode_TIMESTAMP_MODE_WORD}
	check(call.Send(&pb.SpeakRequest{Payload: &pb.SpeakRequest_Config{Config: config}}))
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			check(call.Send(&pb.SpeakRequest{Payload: &pb.SpeakRequest_Text{Text: lines.Text() + "\n"}}))
		}
		check(call.CloseSend()) // all that was sent is spoken, then the call ends
	}()

	out, err := os.Create(path)
	check(err)
	defer out.Close()
	for {
		response, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		check(err)
		switch payload := response.Payload.(type) {
		case *pb.SpeakResponse_Audio:
			_, err = out.Write(payload.Audio.Data)
			check(err)
		case *pb.SpeakResponse_Marks:
			for _, mark := range payload.Marks.Marks {
				fmt.Printf("%d ms  %s\n", mark.StartMs, mark.Text)
			}
		case *pb.SpeakResponse_Done:
			if payload.Done.Error != nil {
				log.Fatal(payload.Done.Error.Message)
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
