import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * An application as users write them: joins two topics within a window. Arguments: key=value settings, of which left,
 * right and joined are topics; with describe it prints its topology only. Says on standard output what happens to it; standard input takes add, remove and jmx, and
 * its end ends the application.
 */
public class StreamsApp {
    public static void main(final String[] arguments) throws Exception {
        final Properties settings = new Properties();
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (final String argument : arguments) {
            final int equals = argument.indexOf('=');
            settings.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream((String) settings.remove("left"));
        final KStream<String, String> right = builder.stream((String) settings.remove("right"));
        left.join(right, (one, other) -> one + other, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1)))
            .to((String) settings.remove("joined"));
        final Topology topology = builder.build();
        if (settings.containsKey("describe")) {
            System.out.println(topology.describe());
            return;
        }
        final KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("THREAD DIED " + error + " / " + error.getCause());
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        final LinkedBlockingQueue<String> commands = new LinkedBlockingQueue<>();
        final Thread reader = new Thread(() -> {
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    commands.add(line);
                }
            } catch (final java.io.IOException ended) {
                // As at its end.
            }
            commands.add("end");
        });
        reader.setDaemon(true);
        reader.start();
        streams.start();
        String before = "";
        while (true) {
            final Set<String> active = new TreeSet<>();
            final Set<String> standby = new TreeSet<>();
            for (final ThreadMetadata thread : streams.metadataForLocalThreads()) {
                thread.activeTasks().forEach(task -> active.add(task.taskId().toString()));
                thread.standbyTasks().forEach(task -> standby.add(task.taskId().toString()));
            }
            final String now = "TASKS " + streams.state() + " " + String.join(",", active) + " " + String.join(",", standby) + " .";
            if (!now.equals(before)) {
                System.out.println(now);
            }
            before = now;
            final String command = commands.poll(20, TimeUnit.MILLISECONDS);
            if ("end".equals(command)) {
                streams.close(Duration.ofSeconds(5));
                System.exit(0);
            } else if ("add".equals(command)) {
                System.out.println("ADDED " + streams.addStreamThread().orElse("nothing"));
            } else if ("remove".equals(command)) {
                System.out.println("REMOVED " + streams.removeStreamThread(Duration.ofSeconds(60)).orElse("nothing"));
            } else if ("jmx".equals(command)) {
                System.out.println("JMX " + metrics() + " .");
            }
        }
    }

    private static String metrics() throws Exception {
        final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        final StringBuilder text = new StringBuilder();
        for (final ObjectName name : server.queryNames(new ObjectName("task.assignor:*"), null)) {
            for (final MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                final Object value = server.getAttribute(name, attribute.getName());
                if (value instanceof Number) {
                    text.append(' ').append(attribute.getName()).append('=').append(value);
                }
            }
        }
        final Runtime runtime = Runtime.getRuntime();
        System.gc();
        return text + " Threads=" + Thread.activeCount() + " HeapBytes=" + (runtime.totalMemory() - runtime.freeMemory());
    }
}
