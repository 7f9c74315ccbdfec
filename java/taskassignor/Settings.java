package taskassignor;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The settings of the bridge, read from those of the application. A value that is wrong is logged and replaced by the
 * default: an exception here would end the stream thread.
 */
final class Settings {
    static final String PREFIX = "python.task.assignor.";
    private static final Set<String> NAMES = Set.of("address", "class", "command", "java.class", "on.failure", "record.dir",
        "record.max.bytes", "retry.ms", "timeout.ms");
    private static final Logger log = LoggerFactory.getLogger("taskassignor");

    final Map<String, ?> all;
    final String application;
    final String assignor;
    final List<String> command;
    final String address;
    final long timeoutMs;
    /** How long a rebalance may wait: less than the timeout where the leader would be thrown out of its group by then. */
    final long rebalanceTimeoutMs;
    final long retryMs;
    final boolean raiseOnFailure;
    final String javaClass;
    final Path recordDir;
    final long recordMaxBytes;

    Settings(final Map<String, ?> all) {
        this.all = all;
        all.keySet().stream().filter(key -> key.startsWith(PREFIX) && !NAMES.contains(key.substring(PREFIX.length()))).sorted()
            .forEach(key -> log.warn("{} is not a setting of the bridge; it changes nothing.", key));
        final String id = text(all.get("application.id"), "");
        application = id.isEmpty() ? text(all.get("group.id"), "unknown") : id;
        assignor = text(all.get(PREFIX + "class"), "sticky");
        command = words(text(all.get(PREFIX + "command"), "task-assignor bridge serve"));
        address = text(all.get(PREFIX + "address"), "");
        timeoutMs = number("timeout.ms", 10_000, 1, Integer.MAX_VALUE);
        rebalanceTimeoutMs = Math.max(1, Math.min(timeoutMs, sessionMs() / 3));
        retryMs = number("retry.ms", 60_000, 1_000, Integer.MAX_VALUE);
        final String onFailure = text(all.get(PREFIX + "on.failure"), "keep");
        raiseOnFailure = onFailure.equals("exception");
        if (!raiseOnFailure && !onFailure.equals("keep")) {
            log.error("The setting {}on.failure ({}) must be keep or exception; keep is used.", PREFIX, onFailure);
        }
        javaClass = text(all.get(PREFIX + "java.class"), "");
        recordDir = folder(text(all.get(PREFIX + "record.dir"), ""));
        recordMaxBytes = number("record.max.bytes", 100_000_000, 1_000, Long.MAX_VALUE);
    }

    private static Path folder(final String text) {
        try {
            return text.isEmpty() ? null : Paths.get(text);
        } catch (final InvalidPathException wrong) {
            log.error("The setting {}record.dir must be a folder; nothing is recorded there: {}", PREFIX, wrong.getMessage());
            return null;
        }
    }

    /** Where states go when no directory is set: beside the state of the application, not in it. */
    Path defaultRecordDir() {
        final String stateDir = text(all.get("state.dir"), Paths.get(System.getProperty("java.io.tmpdir"), "kafka-streams").toString());
        return Paths.get(stateDir, "task-assignor-recordings", application);
    }

    /** The value of any setting as text; lists with commas between. */
    static String text(final Object value, final String otherwise) {
        if (value == null) {
            return otherwise;
        }
        final String text = value instanceof Collection
            ? ((Collection<?>) value).stream().map(String::valueOf).collect(Collectors.joining(","))
            : value instanceof Class ? ((Class<?>) value).getName() : value.toString();
        return text.trim().isEmpty() ? otherwise : text.trim();
    }

    /** While a leader waits for its assignor, Kafka sends no heartbeats. */
    private long sessionMs() {
        try {
            return Long.parseLong(text(all.get("session.timeout.ms"), "45000"));
        } catch (final NumberFormatException wrong) {
            return 45_000;
        }
    }

    private long number(final String name, final long otherwise, final long least, final long most) {
        final String text = text(all.get(PREFIX + name), Long.toString(otherwise));
        try {
            final long value = Long.parseLong(text);
            if (value >= least && value <= most) {
                return value;
            }
        } catch (final NumberFormatException wrong) {
            // Said below.
        }
        log.error("The setting {}{} ({}) must be an integer between {} and {}; {} is used.", PREFIX, name, text, least, most, otherwise);
        return otherwise;
    }

    /** Words between blanks; quotes keep blanks in a word. */
    static List<String> words(final String line) {
        final List<String> words = new ArrayList<>();
        StringBuilder word = null;
        char quote = 0;
        for (final char one : line.toCharArray()) {
            if (quote == 0 && Character.isWhitespace(one)) {
                if (word != null) {
                    words.add(word.toString());
                }
                word = null;
                continue;
            }
            if (word == null) {
                word = new StringBuilder();
            }
            if (quote == 0 && (one == '"' || one == '\'')) {
                quote = one;
            } else if (quote != 0 && one == quote) {
                quote = 0;
            } else {
                word.append(one);
            }
        }
        if (word != null) {
            words.add(word.toString());
        }
        return words;
    }
}
