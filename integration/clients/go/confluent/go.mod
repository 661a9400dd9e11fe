// confluent-kafka-go, which needs a C compiler, apart from the other clients.
module github.com/weirmq/weir/integration/clients/go/confluent

go 1.26.0

require (
	github.com/confluentinc/confluent-kafka-go/v2 v2.11.1
	github.com/weirmq/weir/integration/clients/go v0.0.0
)

replace github.com/weirmq/weir/integration/clients/go => ../
