"""Topics of Kafka as a source of rows. confluent-kafka is imported when one is opened."""
