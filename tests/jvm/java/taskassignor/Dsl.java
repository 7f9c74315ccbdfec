package taskassignor;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/**
 * One operator of the DSL, or a schedule, over some records: {"dsl": operator, "how", "interval", "before", "after", "grace", "size", "advance", "difference", "gap", "final",
 * "atOnce", "records": [[topic, key, value, time], ...]}. The answer has all that came out: [number of the record that did it, which of the
 * aggregates, key, start and end of the window, value, time]; of a schedule [number of the record, time].
 */
final class Dsl {
    private static final Path STATE = state();
    private static final ValueJoiner<Long, Long, String> BOTH = (left, right) -> left + " " + right;
    private static final Aggregator<String, Long, String> FOLD = (key, value, found) -> found + value + ";";

    private final JsonNode asked;
    private final StreamsBuilder builder = new StreamsBuilder();
    private final ArrayNode rows;
    private int number;

    private Dsl(final JsonNode asked, final ArrayNode rows) {
        this.asked = asked;
        this.rows = rows;
    }

    static ObjectNode answer(final JsonNode asked, final ObjectNode reply) {
        new Dsl(asked, reply.putArray("rows")).run();
        return reply;
    }

    private void run() {
        build();
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "dsl");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, STATE.toString());
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.LongSerde.class);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(settings), settings, Instant.EPOCH)) {
            final Map<String, TestInputTopic<String, Long>> topics = new HashMap<>();
            if (asked.path("atOnce").asBoolean()) {
                takeAtOnce(driver);
                return;
            }
            for (final JsonNode record : asked.get("records")) {
                // Kafka looks for what is closed once in a second of the clock.
                driver.advanceWallClockTime(Duration.ofSeconds(2));
                final String key = record.get(1).isNull() ? null : record.get(1).asText();
                final Long value = record.get(2).isNull() ? null : record.get(2).asLong();
                topics.computeIfAbsent(record.get(0).asText(), name ->
                    driver.createInputTopic(name, Serdes.String().serializer(), Serdes.Long().serializer())
                ).pipeInput(key, value, record.get(3).asLong());
                number++;
            }
        }
    }

    /** All records are there before the task takes the first; the driver has that, but lets nobody do it. */
    private void takeAtOnce(final TopologyTestDriver driver) {
        try {
            final Method take = TopologyTestDriver.class.getDeclaredMethod(
                "enqueueTaskRecord", String.class, TopicPartition.class, long.class, byte[].class, byte[].class, Headers.class);
            final Method process = TopologyTestDriver.class.getDeclaredMethod("completeAllProcessableWork");
            take.setAccessible(true);
            process.setAccessible(true);
            for (final JsonNode record : asked.get("records")) {
                final String topic = record.get(0).asText();
                final byte[] value = Serdes.Long().serializer().serialize(topic, record.get(2).asLong());
                take.invoke(driver, topic, new TopicPartition(topic, 0), record.get(3).asLong(), null, value, new RecordHeaders());
            }
            process.invoke(driver);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private void build() {
        final String how = asked.path("how").asText();
        switch (asked.get("dsl").asText()) {
            case "order" -> {
                final Set<String> topics = new TreeSet<>();
                asked.get("records").forEach(record -> topics.add(record.get(0).asText()));
                told("", builder.stream(topics, Consumed.with(Serdes.String(), Serdes.Long())));
            }
            case "schedule" -> stream("s").process(() -> new ContextualProcessor<String, Long, Void, Void>() {
                @Override
                public void init(final ProcessorContext<Void, Void> context) {
                    context.schedule(millis("interval"), PunctuationType.STREAM_TIME, time -> rows.addArray().add(number).add(time));
                }

                @Override
                public void process(final Record<String, Long> record) { }
            });
            case "streams" -> {
                final KStream<String, Long> left = stream("l");
                final KStream<String, Long> right = stream("r");
                final StreamJoined<String, Long, Long> stores = StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.Long());
                // Wide at first: no step on the way may be a window that nothing matches.
                final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofDays(1), millis("grace"))
                    .after(millis("after")).before(millis("before"));
                told("", switch (how) {
                    case "inner" -> left.join(right, BOTH, windows, stores);
                    case "left" -> left.leftJoin(right, BOTH, windows, stores);
                    default -> left.outerJoin(right, BOTH, windows, stores);
                });
            }
            case "lookup" -> {
                final KTable<String, Long> table = table("t");
                told("", how.equals("inner") ? stream("s").join(table, BOTH) : stream("s").leftJoin(table, BOTH));
            }
            case "tables" -> {
                final KTable<String, Long> left = table("l");
                final KTable<String, Long> right = table("r");
                told("", switch (how) {
                    case "inner" -> left.join(right, BOTH).toStream();
                    case "left" -> left.leftJoin(right, BOTH).toStream();
                    default -> left.outerJoin(right, BOTH).toStream();
                });
            }
            case "running" -> {
                final KGroupedStream<String, Long> grouped = stream("s").groupByKey();
                told("count", grouped.count().toStream());
                told("sum", grouped.reduce(Long::sum).toStream());
                told("fold", grouped.aggregate(() -> "", FOLD, kept(Serdes.String())).toStream());
            }
            case "groups" -> {
                final KGroupedTable<String, Long> grouped = table("t")
                    .groupBy((key, value) -> KeyValue.pair("g" + value % 3, value), Grouped.with(Serdes.String(), Serdes.Long()));
                told("count", grouped.count().toStream());
                told("sum", grouped.reduce(Long::sum, (sum, value) -> sum - value).toStream());
                told("held", grouped.aggregate(
                    () -> "",
                    (key, value, held) -> held + "[" + value + "]",
                    (key, value, held) -> held.replaceFirst("\\[" + value + "\\]", ""),
                    kept(Serdes.String())).toStream());
            }
            case "windows" -> {
                final TimeWindows windows = TimeWindows.ofSizeAndGrace(millis("size"), millis("grace")).advanceBy(millis("advance"));
                final TimeWindowedKStream<String, Long> grouped = emitted(stream("s").groupByKey().windowedBy(windows));
                told("count", closed(grouped.count(kept(Serdes.Long()))));
                told("fold", closed(grouped.aggregate(() -> "", FOLD, kept(Serdes.String()))));
            }
            case "sliding" -> {
                final SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(millis("difference"), millis("grace"));
                final TimeWindowedKStream<String, Long> grouped = emitted(stream("s").groupByKey().windowedBy(windows));
                told("count", closed(grouped.count(kept(Serdes.Long()))));
                told("sum", closed(grouped.reduce(Long::sum, kept(Serdes.Long()))));
            }
            case "chain" -> {
                final TimeWindows windows = TimeWindows.ofSizeAndGrace(millis("size"), millis("grace")).advanceBy(millis("advance"));
                final TimeWindowedKStream<String, String> grouped = emitted(stream("s").leftJoin(table("t"), BOTH)
                    .groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(windows));
                told("count", closed(grouped.count(kept(Serdes.Long()))));
                told("fold", closed(grouped.aggregate(() -> "", (key, value, found) -> found + value + ";", kept(Serdes.String()))));
            }
            case "sessions" -> {
                final SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(millis("gap"), millis("grace"));
                final SessionWindowedKStream<String, Long> all = stream("s").groupByKey().windowedBy(windows);
                final SessionWindowedKStream<String, Long> grouped = isSuppressed() ? all : all.emitStrategy(EmitStrategy.onWindowClose());
                told("count", closed(grouped.count(kept(Serdes.Long()))));
                told("sum", closed(grouped.reduce(Long::sum, kept(Serdes.Long()))));
            }
            default -> throw new IllegalArgumentException("no such operator: " + asked.get("dsl"));
        }
    }

    private KStream<String, Long> stream(final String name) {
        return builder.stream(name, Consumed.with(Serdes.String(), Serdes.Long()));
    }

    private KTable<String, Long> table(final String name) {
        return builder.table(name, Consumed.with(Serdes.String(), Serdes.Long()));
    }

    private Duration millis(final String name) {
        return Duration.ofMillis(asked.get(name).asLong());
    }

    private boolean isSuppressed() {
        return asked.get("final").asText().equals("suppress");
    }

    /** How to keep what is aggregated; where it is given when it is closed, or made of older windows, long enough that it is there then. */
    private <V, S extends StateStore> Materialized<String, V, S> kept(final Serde<V> values) {
        final Materialized<String, V, S> found = Materialized.with(Serdes.String(), values);
        return asked.path("final").asText().equals("close") || asked.get("dsl").asText().equals("sliding") ? found.withRetention(Duration.ofDays(1)) : found;
    }

    private <V> TimeWindowedKStream<String, V> emitted(final TimeWindowedKStream<String, V> windows) {
        return isSuppressed() ? windows : windows.emitStrategy(EmitStrategy.onWindowClose());
    }

    private <V> KStream<Windowed<String>, V> closed(final KTable<Windowed<String>, V> windows) {
        return (isSuppressed() ? windows.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())) : windows).toStream();
    }

    private <K, V> void told(final String aggregate, final KStream<K, V> stream) {
        stream.process(() -> record -> tell(aggregate, record));
    }

    private void tell(final String aggregate, final Record<?, ?> record) {
        final ArrayNode row = rows.addArray().add(number).add(aggregate);
        if (record.key() instanceof Windowed<?> windowed) {
            row.add(String.valueOf(windowed.key())).add(windowed.window().start()).add(windowed.window().end());
        } else {
            row.add((String) record.key()).addNull().addNull();
        }
        row.add(record.value() == null ? null : String.valueOf(record.value())).add(record.timestamp());
    }

    private static Path state() {
        try {
            final Path found = Files.createTempDirectory("dsl");
            found.toFile().deleteOnExit();
            return found;
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
