module sonorant-example

go 1.19

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20230822172742-b8732ec3820d
	google.golang.org/grpc v1.58.3
	google.golang.org/protobuf v1.31.0
)
