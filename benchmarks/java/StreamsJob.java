import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * The jobs of bench_runtime_kafka.py in Kafka Streams, exactly once, with its defaults: brokers, application.id, "copy" or "join", threads,
 * window and grace in ms, folder of its state. Ends with standard input.
 */
public final class StreamsJob {
    /** A row of a source. */
    public record Row(long key, long at, long n) {}

    /** Two of them. */
    public record Pair(long key, long at, long n, long at_right, long n_right) {}

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = new ObjectMapper().readerFor(type);
        ObjectWriter writer = new ObjectMapper().writerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return writer.writeValueAsBytes(value);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return reader.readValue(bytes);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
    }

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("num.stream.threads", arguments[3]);
        settings.put("state.dir", arguments[6]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("replication.factor", "1");
        StreamsBuilder builder = new StreamsBuilder();
        Serde<Long> key = Serdes.Long();
        Serde<Row> row = json(Row.class);
        KStream<Long, Row> left = builder.stream("left", Consumed.with(key, row));
        if (arguments[2].equals("copy")) {
            left.to("results", Produced.with(key, row));
        } else {
            Duration window = Duration.ofMillis(Long.parseLong(arguments[4]));
            Duration grace = Duration.ofMillis(Long.parseLong(arguments[5]));
            left.join(
                            builder.stream("right", Consumed.with(key, row)),
                            (one, other) -> new Pair(one.key(), one.at(), one.n(), other.at(), other.n()),
                            JoinWindows.ofTimeDifferenceAndGrace(window, grace),
                            StreamJoined.with(key, row, row))
                    .to("results", Produced.with(key, json(Pair.class)));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        streams.start();
        while (System.in.read() >= 0) {}
        streams.close();
    }
}
